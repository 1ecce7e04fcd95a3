"""The emulated network carries what it is told to, and leaves nothing behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.fabric.network import GOODPUT, NAMESPACES, Network, NotPossibleError, Wiring, remove_forsaken

pytestmark = pytest.mark.usefixtures("root")
SMALL = Wiring(leaves=2, nodes=1, node_mbit=80, uplink_mbit=16)
SINK = """
import socket, time
server = socket.create_server(("0.0.0.0", 5000)); print("ready", flush=True)
one, _ = server.accept(); began, size = time.monotonic(), 0
while data := one.recv(1 << 20): size += len(data)
print(size * 8 / 1e6 / (time.monotonic() - began), flush=True)
"""
SOURCE = """
import socket, sys
with socket.create_connection((sys.argv[1], 5000)) as one: one.sendall(bytes(int(sys.argv[2])))
"""
ECHO = """
import socket
server = socket.create_server(("0.0.0.0", 5001)); print("ready", flush=True)
one, _ = server.accept()
while data := one.recv(1): one.sendall(data)
"""
PING = """
import socket, sys, time
with socket.create_connection((sys.argv[1], 5001)) as one:
    times = []
    for _ in range(20):
        began = time.monotonic(); one.sendall(b"x"); one.recv(1); times.append(time.monotonic() - began)
print(sorted(times)[5])
"""


def ours() -> list[str]:
    return [path.name for path in NAMESPACES.glob(f"atollnet-{os.getpid()}-*")]


def served(network: Network, program: str) -> subprocess.Popen[str]:
    command = network.inside("l1n0", [sys.executable, "-c", program])
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    assert server.stdout.readline() == "ready\n"
    return server


def test_a_flow_gets_the_rate_of_its_narrowest_link() -> None:
    """2 MB over an uplink of 16 Mbit/s takes a second; headers take their part. A busy machine is never faster."""
    with Network(SMALL) as network:
        server = served(network, SINK)
        address = next(host.address for host in SMALL.hosts() if host.name == "l1n0")
        subprocess.run(
            network.inside("l0n0", [sys.executable, "-c", SOURCE, address, "2000000"]), check=True, timeout=60
        )
        measured = float(server.communicate(timeout=60)[0])
    assert 0.7 * 16 <= measured <= 1.08 * 16 * GOODPUT


def test_uplinks_hold_frames_back() -> None:
    """Two uplinks of 5 ms on the way there and two on the way back."""
    if not os.access("/dev/net/tun", os.W_OK):
        pytest.skip("no /dev/net/tun")
    with Network(Wiring(2, 1, 80, 16, uplink_delay_s=0.005)) as network:
        server = served(network, ECHO)
        command = network.inside("l0n0", [sys.executable, "-c", PING, "10.77.2.1"])
        done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60)
        server.kill()
        server.wait()
    assert 0.02 <= float(done.stdout) <= 0.06


def test_nothing_is_left_on_leaving_or_failing() -> None:
    with Network(SMALL) as network:
        sleeper = subprocess.Popen(network.inside("l0n0", ["sleep", "600"]))
        assert len(ours()) == 4  # two hosts, head, switch
    assert ours() == []
    assert sleeper.wait(timeout=10) == -signal.SIGKILL
    with pytest.raises(RuntimeError, match="on purpose"), Network(SMALL):
        raise RuntimeError("on purpose")
    assert ours() == []
    with pytest.raises(NotPossibleError), Network(Wiring(1, 1, 0, 16)):
        pass
    assert ours() == []


def test_a_network_whose_owner_was_killed_is_removed_by_the_next_one(tmp_path: Path) -> None:
    program = (
        "import sys, time; from benchmarks.fabric.network import *; Network(Wiring(1, 1, 80, 16)).__enter__(); "
        "print('up', flush=True); time.sleep(600)"
    )
    owner = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None
    assert owner.stdout.readline() == "up\n"
    left = f"atollnet-{owner.pid}-head"
    remove_forsaken()
    assert (NAMESPACES / left).exists()  # its owner lives
    owner.kill()
    owner.wait()
    remove_forsaken()
    assert not (NAMESPACES / left).exists()
