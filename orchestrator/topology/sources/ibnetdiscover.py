"""The InfiniBand fabric as `ibnetdiscover` prints it (infiniband-diags, ibnetdiscover(8)).

A node's record begins with `Switch` or `Ca` and is followed by a line for each cabled port: port, GUID and
port of the other end, and in a comment its name, LID, width and speed. An adapter's name is `HOST ADAPTER`; a
host is all adapters with its name.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from dataclasses import dataclass, field

from orchestrator.spec.sections import Tier
from orchestrator.topology.fabric import Fabric, Node
from orchestrator.topology.links import Link
from orchestrator.topology.names import natural_key
from orchestrator.topology.sources.content import Content
from orchestrator.topology.sources.reading import Problem, Reading, counted, listed
from orchestrator.topology.sources.switch_graph import PlacedHosts, SwitchGraph, place_hosts

_RECORD = re.compile(r'(Switch|Ca|Rt)\s+\d+\s+"([SHR]-[0-9a-fA-F]+)"\s*(?:#\s*"([^"]*)")?')
_PORT = re.compile(
    r'\[(\d+)\](?:\[[0-9a-fA-F]+\])?(?:\([0-9a-fA-F]+\))?\s+"([SHR]-[0-9a-fA-F]+)"\[(\d+)\](?:\([0-9a-fA-F]+\))?\s*#\s*(.*)'
)
_SPEED = re.compile(r"\b(\d{1,2})x(SDR|DDR|QDR|FDR10|FDR|EDR|HDR|NDR|XDR)\b")
_START = re.compile(r'(?m)^(?:Switch|Ca|Rt)[ \t]+\d+[ \t]+"[SHR]-')
_CHASSIS = re.compile(r"[^;:]+;([^;:]+):[^;:]+")
_FACTORY = re.compile(
    r"(?i)mellanox technologies|nvidia|^MT\d+|connectx|aggregation node|^intel|^infinihost|\bHCA\s*$"
)
_AGGREGATION = re.compile(r"(?i)aggregation node|sharp")
_DEFAULT_HOSTS = frozenset(
    {"localhost", "localhost.localdomain", "ubuntu", "debian", "rocky", "centos", "(none)", "none"}
)
LANE_BYTES_PER_S = {
    "SDR": 0.25e9,
    "DDR": 0.5e9,
    "QDR": 1.0e9,
    "FDR10": 1.25e9,
    "FDR": 1.705e9,
    "EDR": 3.125e9,
    "HDR": 6.25e9,
    "NDR": 12.5e9,
    "XDR": 25.0e9,
}
"""Data rate of one lane in one direction by name of the speed (InfiniBand Architecture Specification, volume 2)."""


@dataclass(slots=True)
class _Record:
    guid: str
    is_switch: bool
    name: str
    line: int
    ports: dict[int, tuple[str, str | None, int]] = field(default_factory=dict)
    """Port -> GUID of the other end, width and speed (`4xNDR`), line."""


def recognises(content: Content) -> bool:
    return _START.search(content.text) is not None


def read(content: Content) -> list[Reading]:
    """InvalidFabricError for a file that was cut off, and one without switches."""
    return [_Dump(content).reading()]


class _Dump:
    def __init__(self, content: Content) -> None:
        self._content = content
        self._problems: list[Problem] = []
        self._records: dict[str, _Record] = {}
        self._adapters: dict[str, str] = {}
        """GUID of each adapter -> its name, as its own record or a switch's port says."""
        self._last = max(number for number, line in enumerate(content.lines, start=1) if line.strip())
        """Last line with text."""
        self._parse()

    def _parse(self) -> None:
        current: _Record | None = None
        for number, line in enumerate(self._content.lines, start=1):
            record = _RECORD.match(line)
            if record is not None:
                current = _Record(_guid(record[2]), record[1] == "Switch", record[3] or "", number)
                self._records.setdefault(current.guid, current)
            elif line.startswith("[") and current is not None:
                self._port(current, line, number)
            elif not line.strip():
                current = None

    def _port(self, record: _Record, line: str, number: int) -> None:
        port = _PORT.fullmatch(line.rstrip())
        if port is None:
            what = (
                "the file was cut off here" if number == self._last else "is no port of a switch or adapter"
            )
            raise self._content.refuse(f"line {number}: {what}: {line.strip()[:60]}")
        speed = _SPEED.search(port[4])
        if speed is None and number == self._last:
            raise self._content.refuse(f"line {number}: a port without its speed: the file was cut off here")
        other = _guid(port[2])
        record.ports[int(port[1][:9])] = (other, speed[0] if speed else None, number)
        name = re.search(r'"([^"]*)"', port[4])
        if other.startswith("H-") and record.is_switch and name is not None:
            self._adapters.setdefault(other, name[1])

    def reading(self) -> Reading:
        switches = {guid: record for guid, record in self._records.items() if record.is_switch}
        self._check_whole(switches)
        self._adapters |= {
            record.guid: record.name for record in self._records.values() if not record.is_switch
        }
        hosts = self._hosts()
        if not hosts:
            raise self._content.refuse("holds no adapter that is named after a host: no node can be told")
        cables = self._cables(switches)
        homes = {
            f"host {name}": {
                guid for guid in switches if any(cables[guid].get(adapter) for adapter in adapters)
            }
            for name, adapters in hosts.items()
        }
        graph = SwitchGraph(homes, self._between(switches, cables), self._names(switches))
        placed = place_hosts(graph)
        self._note_speeds(switches)
        for note in placed.notes:
            self._problems.append(self._content.problem(None, note))
        nodes = [Node(name, 0, placed.domains[f"host {name}"]) for name in hosts]
        facts = {
            "leaf switches": placed.leaves,
            "switches above the leaves": placed.above,
            "adapters": sum(len(adapters) for adapters in hosts.values()),
        }
        fabric = Fabric(
            tuple(sorted(nodes, key=lambda node: natural_key(node.name))), self._links(switches, placed)
        )
        return Reading("ibnetdiscover", fabric, tuple(self._problems), facts=facts)

    def _check_whole(self, switches: dict[str, _Record]) -> None:
        if not switches:
            raise self._content.refuse("holds no switch: adapters alone say nothing of who is near whom")
        named = {
            other: line
            for record in switches.values()
            for other, _, line in record.ports.values()
            if other.startswith("S-")
        }
        missing = sorted(set(named) - set(switches))
        if missing:
            what = counted(len(missing), "switch is", "switches are")
            raise self._content.refuse(
                f"line {named[missing[0]]}: {what} cabled and not described ({listed(missing)}): the file was cut off"
            )

    def _hosts(self) -> dict[str, list[str]]:
        """Host -> GUIDs of its adapters. Adapters whose host cannot be told are problems."""
        hosts: defaultdict[str, list[str]] = defaultdict(list)
        factory: list[str] = []
        unnamed: defaultdict[str, list[str]] = defaultdict(list)
        for guid, name in self._adapters.items():
            if _AGGREGATION.search(name):
                continue
            words = name.split()
            if not words or _FACTORY.search(name):
                if len(words) == 2 and not _FACTORY.search(words[0]):
                    hosts[words[0]].append(guid)
                else:
                    factory.append(guid)
            elif words[0].lower() in _DEFAULT_HOSTS:
                unnamed[words[0]].append(guid)
            else:
                hosts[words[0]].append(guid)
        if factory:
            self._note_adapters(
                factory, "still have their factory name, so their hosts are unknown and left out"
            )
        for name, guids in unnamed.items():
            self._note_adapters(guids, f"belong to hosts called {name}, which may be several: left out")
        return dict(hosts)

    def _note_adapters(self, guids: list[str], what: str) -> None:
        records = [self._records[guid] for guid in guids if guid in self._records]
        line = min((record.line for record in records), default=None)
        adapters = counted(len(guids), "adapter")
        self._problems.append(self._content.problem(line, f"{adapters} {what} ({listed(sorted(guids))})"))

    def _cables(self, switches: dict[str, _Record]) -> dict[str, Counter[str]]:
        """Switch -> other end -> cables, from both ends' records."""
        found: dict[str, Counter[str]] = {
            guid: Counter(other for other, _, _ in record.ports.values()) for guid, record in switches.items()
        }
        for record in self._records.values():
            if record.is_switch:
                continue
            for other, _, _ in record.ports.values():
                if other in found and not found[other][record.guid]:
                    found[other][record.guid] += 1
        return found

    def _between(
        self, switches: dict[str, _Record], cables: dict[str, Counter[str]]
    ) -> dict[str, dict[str, int]]:
        return {guid: {o: n for o, n in cables[guid].items() if o in switches} for guid in switches}

    def _names(self, switches: dict[str, _Record]) -> dict[str, str]:
        """A switch's host name out of `MF0;leaf1:MQM9700/U1`; its GUID where names are missing or shared."""
        found: dict[str, str] = {}
        for guid, record in switches.items():
            chassis = _CHASSIS.fullmatch(record.name)
            found[guid] = chassis[1] if chassis else record.name.strip()
        count = Counter(found.values())
        return {
            guid: name if name and count[name] == 1 and not _FACTORY.search(name) else guid
            for guid, name in found.items()
        }

    def _note_speeds(self, switches: dict[str, _Record]) -> None:
        speeds = Counter(
            speed for record in switches.values() for _, speed, _ in record.ports.values() if speed
        )
        usual = speeds.most_common(1)[0][0] if speeds else None
        for record in switches.values():
            for port, (other, speed, line) in record.ports.items():
                if speed is not None and usual is not None and _bytes(speed) < _bytes(usual):
                    message = (
                        f"port {port} to {other} runs at {speed}, most others at {usual}: a bad cable or port"
                    )
                    self._problems.append(self._content.problem(line, message))

    def _links(self, switches: dict[str, _Record], placed: PlacedHosts) -> dict[Tier, Link]:
        speeds = Counter(
            speed
            for record in switches.values()
            for other, speed, _ in record.ports.values()
            if speed and other.startswith("H-")
        )
        if not speeds:
            return {}
        usual = speeds.most_common(1)[0][0]
        kind, rate = f"ib-{usual.partition('x')[2].lower()}", _bytes(usual)
        uplinks = list(placed.uplinks.values())
        found = {Tier.LEAF: Link(kind=kind, bandwidth=rate)}
        if uplinks:
            found[Tier.SPINE] = Link(kind=kind, bandwidth=rate, uplink=min(uplinks) * rate)
        return found


def _bytes(speed: str) -> float:
    """Bytes per second of `4xNDR`, one direction."""
    width, _, name = speed.partition("x")
    return int(width) * LANE_BYTES_PER_S[name]


def _guid(text: str) -> str:
    return text[:2] + text[2:].lower()
