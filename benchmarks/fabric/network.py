"""A network of hosts, leaf switches and a spine inside this machine: namespaces, veth pairs, bridges, token buckets.

    host (a namespace) -- eth0 -- leaf (a bridge) -- uplink -- spine (a bridge)

All bridges lie in one namespace of their own; the machine's own network is left as it is. Every link is shaped at both
ends (tc TBF), so that each direction has its rate. With a delay the uplinks lead through a process that holds every
frame back (`delay.py`), since not every kernel has netem. Needs root.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

from actors.processes import alive

PREFIX = "atollnet"
NAMESPACES = Path("/run/netns")
_OURS = re.compile(rf"{PREFIX}-(\d+)-[a-z0-9]+")
BURST_S = 0.002
"""Of the line rate, that a token bucket lets pass at once; at least one large frame."""
LEAST_BURST_BYTES = 32 << 10
QUEUE_S = 0.03
"""What a shaped link queues before it drops, in time at its rate."""
GOODPUT = 1448 / 1514
"""Share of an Ethernet frame of 1,500 bytes of payload, as token buckets count it, that TCP with timestamps carries."""


class NotPossibleError(RuntimeError):
    """This machine or user cannot make such a network; the text says why."""


@dataclass(frozen=True, slots=True)
class Host:
    name: str
    """`l0n1`; `head` hangs on the spine."""
    leaf: str | None
    address: str


@dataclass(frozen=True, slots=True)
class Wiring:
    """How many leaf switches and nodes under each, and what their links carry."""

    leaves: int
    nodes: int
    node_mbit: float
    uplink_mbit: float
    uplink_delay_s: float = 0.0
    """One way, of each uplink."""

    def hosts(self) -> Iterator[Host]:
        for leaf in range(self.leaves):
            for node in range(self.nodes):
                yield Host(f"l{leaf}n{node}", f"l{leaf}", f"10.77.{leaf + 1}.{node + 1}")


HEAD = Host("head", None, "10.77.0.1")


def why_not() -> str | None:
    """Why no network can be made here; None when one can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    missing = [tool for tool in ("ip", "tc") if shutil.which(tool) is None]
    if missing:
        return f"{' and '.join(missing)} of iproute2 missing"
    return None


def _run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise NotPossibleError(f"{' '.join(command)}: {done.stderr.strip() or f'code {done.returncode}'}")
    return done.stdout


@dataclass
class Network:
    """Made on entering, removed on leaving with whatever runs in it."""

    wiring: Wiring
    owner: int = field(default_factory=os.getpid)
    """Process that made it: part of its names."""
    _relays: list[subprocess.Popen[str]] = field(default_factory=list)

    def __enter__(self) -> Network:
        if reason := why_not():
            raise NotPossibleError(reason)
        remove_forsaken()
        try:
            self._make()
        except BaseException:
            self.remove()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.remove()

    def namespace(self, host: str) -> str:
        return f"{PREFIX}-{self.owner}-{host}"

    def inside(self, host: str, command: Sequence[str]) -> list[str]:
        """`command` as one that runs on `host`."""
        return ["ip", "netns", "exec", self.namespace(host), *command]

    def shape_node(self, host: str, mbit: float) -> None:
        """Gives the link of a node another rate."""
        _shape(self.namespace(host), "eth0", mbit)
        _shape(self.namespace("switch"), f"p-{host}", mbit)

    def shape_uplink(self, leaf: str, mbit: float) -> None:
        for end in (f"up-{leaf}", f"down-{leaf}"):
            _shape(self.namespace("switch"), end, mbit)

    def remove(self) -> None:
        """Ends what runs in the namespaces and deletes them; links and bridges go with them."""
        for relay in self._relays:
            relay.kill()
            relay.wait()
        self._relays = []
        for path in sorted(NAMESPACES.glob(f"{PREFIX}-{self.owner}-*")):
            _delete(path.name)

    def _make(self) -> None:
        switch = self.namespace("switch")
        _run("ip", "netns", "add", switch)
        self._bridge("spine")
        self._port(HEAD, "spine", None)
        for number in range(self.wiring.leaves):
            leaf = f"l{number}"
            self._bridge(leaf)
            self._uplink(leaf)
        for host in self.wiring.hosts():
            assert host.leaf is not None
            self._port(host, host.leaf, self.wiring.node_mbit)

    def _bridge(self, name: str) -> None:
        switch = self.namespace("switch")
        _run("ip", "-n", switch, "link", "add", name, "type", "bridge")
        _run("ip", "-n", switch, "link", "set", name, "up")

    def _port(self, host: Host, bridge: str, mbit: float | None) -> None:
        here, switch, port = self.namespace(host.name), self.namespace("switch"), f"p-{host.name}"
        _run("ip", "netns", "add", here)
        _run(
            "ip", "link", "add", "eth0", "netns", here, "type", "veth", "peer", "name", port, "netns", switch
        )
        _run("ip", "-n", switch, "link", "set", port, "master", bridge, "up")
        _run("ip", "-n", here, "link", "set", "lo", "up")
        _run("ip", "-n", here, "addr", "add", f"{host.address}/16", "dev", "eth0")
        _run("ip", "-n", here, "link", "set", "eth0", "up")
        if mbit is not None:
            self.shape_node(host.name, mbit)

    def _uplink(self, leaf: str) -> None:
        switch, up, down = self.namespace("switch"), f"up-{leaf}", f"down-{leaf}"
        if self.wiring.uplink_delay_s:
            self._delayed(up, leaf, down, "spine")
        else:
            _run("ip", "-n", switch, "link", "add", up, "type", "veth", "peer", "name", down)
            _run("ip", "-n", switch, "link", "set", up, "master", leaf, "up")
            _run("ip", "-n", switch, "link", "set", down, "master", "spine", "up")
        self.shape_uplink(leaf, self.wiring.uplink_mbit)

    def _delayed(self, up: str, leaf: str, down: str, spine: str) -> None:
        program = str(Path(__file__).with_name("delay.py"))
        ends = [f"{up}@{leaf}", f"{down}@{spine}"]
        command = self.inside("switch", [sys.executable, program, *ends, str(self.wiring.uplink_delay_s)])
        relay = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self._relays.append(relay)
        assert relay.stdout is not None
        if relay.stdout.readline().strip() != "ready":
            raise NotPossibleError(f"the delay line of {leaf} did not start; /dev/net/tun must be usable")


def _shape(namespace: str, device: str, mbit: float) -> None:
    """Sets the rate of what leaves `device`."""
    burst = max(LEAST_BURST_BYTES, int(mbit * 1e6 / 8 * BURST_S))
    rate = ("rate", f"{int(mbit * 1e3)}kbit", "burst", str(burst), "latency", f"{QUEUE_S * 1e3:.0f}ms")
    _run("tc", "-n", namespace, "qdisc", "replace", "dev", device, "root", "tbf", *rate)


def _delete(namespace: str) -> None:
    for line in subprocess.run(
        ["ip", "netns", "pids", namespace], capture_output=True, text=True
    ).stdout.split():
        subprocess.run(["kill", "-9", line], capture_output=True)
    subprocess.run(["ip", "netns", "delete", namespace], capture_output=True)


def remove_forsaken() -> None:
    """Deletes namespaces of runs that were killed: those that carry the id of a process that is gone."""
    for path in NAMESPACES.glob(f"{PREFIX}-*") if NAMESPACES.is_dir() else ():
        found = _OURS.fullmatch(path.name)
        if found and not alive(int(found[1])):
            _delete(path.name)
