"""NCCL's and RCCL's topology files (`NCCL_TOPO_DUMP_FILE`, `NCCL_TOPO_FILE`): the inside of one node.

Format: NCCL src/graph/xml.cc and topo.cc. `system` holds `cpu`s (one a NUMA node), they hold `pci` devices,
bridges in bridges; a GPU is a `pci` with a `gpu` in it, or, where a cloud gives the file as a hint, one of
PCI class 0x03 or 0x12; an adapter one with `nic` and `net`, or of class 0x02. NVLinks (`nvlink`, AMD: `xgmi`)
name the bus id of the other end, which may be an NVSwitch (class 0x0680), or nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from orchestrator.spec.sections import Tier
from orchestrator.topology.fabric import Fabric, Node
from orchestrator.topology.links import Link
from orchestrator.topology.names import natural_key
from orchestrator.topology.sources.content import Content
from orchestrator.topology.sources.islands import Pair, islands_of, weak_pairs
from orchestrator.topology.sources.link_kinds import adapter_kind, nvlink_of_sm, pcie_of_rate
from orchestrator.topology.sources.reading import Problem, Reading, counted, listed
from orchestrator.topology.sources.xml_tree import Element, read_xml

MAX_GPUS = 256
MAX_NICS = 1024
MAX_GBPS = 3200
"""No adapter is faster; some drivers report nonsense."""
_SWITCH = "0x0680"
_GPU_CLASSES = ("0x03", "0x12")
_GCN = {
    "906": "MI50",
    "908": "MI100",
    "910": "MI250",
    "940": "MI300A",
    "941": "MI300X",
    "942": "MI300X",
    "950": "MI355X",
}
"""Accelerator by the architecture RCCL writes (ROCm's list of supported GPUs)."""


@dataclass(slots=True)
class _Device:
    """A GPU or adapter, and the elements it hangs on, the CPU first."""

    name: str
    element: Element
    path: tuple[Element, ...]
    bus: str


@dataclass(slots=True)
class _Nic(_Device):
    gbps: int | None = None
    infiniband: bool = False
    ports: list[str] = field(default_factory=list)


def recognises(content: Content) -> bool:
    start = content.text.lstrip()[:4096]
    return start.startswith("<") and (
        "<system" in content.text[:65536] or start.startswith(("<?xml", "<!--", "<!"))
    )


def read(content: Content) -> list[Reading]:
    """InvalidFabricError for what is no XML, no topology, or holds no GPU."""
    root = read_xml(content)
    if root.tag != "system":
        raise content.refuse(
            f"line {root.line}: is XML with the root {root.tag[:40]}, not a NCCL topology (system)"
        )
    hosts: dict[str, Element] = {}
    for cpu in root.children:
        key = cpu.attributes.get("host_hash", "")
        hosts.setdefault(key, Element("system", {}, root.line)).children.append(cpu)
    if len(hosts) > 1:
        return [_rack(content, hosts)]
    return [_System(content, root).reading()]


def _rack(content: Content, hosts: dict[str, Element]) -> Reading:
    """Several hosts in one file: NCCL joins the files of hosts in one NVLink domain (MNNVL), and only those."""
    readings = {
        f"host-{key.removeprefix('0x')}": _System(content, part).reading() for key, part in hosts.items()
    }
    island = f"nvlink-of-{next(iter(readings))}"
    nodes = [
        replace(node, name=name, islands={}, domains={Tier.ISLAND: island})
        for name, reading in readings.items()
        for node in reading.fabric.nodes
    ]
    hashes = listed(list(readings))
    note = content.problem(
        None, f"{len(nodes)} hosts of one NVLink domain are named by a hash alone: {hashes}"
    )
    problems = [problem for reading in readings.values() for problem in reading.problems]
    links = next(iter(readings.values())).fabric.links
    return Reading("NCCL topology", Fabric(tuple(nodes), links), (note, *problems))


class _System:
    def __init__(self, content: Content, root: Element) -> None:
        self._content = content
        self._root = root
        self._problems: list[Problem] = []
        self._gpus: list[_Device] = []
        self._nics: list[_Nic] = []
        for cpu in root.children:
            self._collect(cpu, (cpu,))
        self._gpus.sort(key=_index)

    def _collect(self, element: Element, path: tuple[Element, ...]) -> None:
        for child in element.children:
            if child.tag == "pci":
                self._device(child, (*path, child))
            elif child.tag == "nic":
                names = [net.attributes.get("name", "?") for net in child.children if net.tag == "net"]
                self._note(
                    child.line, f"{listed(names)} is on no PCI device, so it is virtual: no GPU's adapter"
                )

    def _device(self, pci: Element, path: tuple[Element, ...]) -> None:
        kind, bus = pci.attributes.get("class", "").lower(), pci.attributes.get("busid", "").lower()
        gpus = [child for child in pci.children if child.tag == "gpu"]
        nics = [child for child in pci.children if child.tag == "nic"]
        for gpu in gpus:
            self._gpus.append(_Device(gpu.attributes.get("dev", ""), gpu, path, bus))
        for nic in nics:
            self._add_nic(pci, nic, path, bus, kind)
        if not gpus and not nics and not any(child.tag == "pci" for child in pci.children):
            if kind.startswith(_GPU_CLASSES):
                self._gpus.append(_Device("", pci, path, bus))
            elif kind.startswith("0x02"):
                self._nics.append(_Nic(bus, pci, path, bus, infiniband=kind.startswith("0x0207")))
        self._collect(Element("pci", {}, pci.line, [c for c in pci.children if c.tag == "pci"]), path)

    def _add_nic(self, pci: Element, nic: Element, path: tuple[Element, ...], bus: str, kind: str) -> None:
        for net in nic.children:
            if net.tag != "net":
                continue
            name = net.attributes.get("name") or bus
            mbps = net.number("speed")
            gbps = mbps // 1000 if mbps is not None and mbps > 0 else None
            if gbps is not None and gbps > MAX_GBPS:
                self._note(
                    net.line,
                    f"{name} has the speed {gbps} Gb/s, which no adapter has: its bandwidth is unknown",
                )
                gbps = None
            self._nics.append(_Nic(name, net, path, bus, gbps, kind.startswith("0x0207")))

    def reading(self) -> Reading:
        if not self._gpus:
            raise self._content.refuse("is a NCCL topology without a GPU")
        count = self._number()
        if count > MAX_GPUS:
            raise self._content.refuse(f"has a GPU of index {count - 1}; at most {MAX_GPUS} are read")
        if len(self._nics) > MAX_NICS:
            raise self._content.refuse(f"has {len(self._nics)} adapters; at most {MAX_NICS} are read")
        links, through_switch = self._nvlinks()
        islands = islands_of(count, links)
        weak = weak_pairs(islands, links) if not through_switch else {}
        self._note_links(islands, weak, links)
        node = Node(
            "",
            count,
            islands=islands,
            rails=self._rails(),
            weak_pairs=frozenset(weak),
            accelerator=self._accelerator(),
        )
        return Reading(
            "NCCL topology", Fabric((node,), self._links(node)), tuple(self._problems), inside=True
        )

    def _number(self) -> int:
        """Gives every GPU its index (`dev`, else the order of the file); the number of GPUs."""
        taken: set[int] = set()
        for gpu in self._gpus:
            number = gpu.element.number("dev")
            if number is not None and number >= 0 and number not in taken:
                taken.add(number)
                gpu.name = str(number)
            elif gpu.element.tag == "gpu":
                self._note(
                    gpu.element.line,
                    f"the GPU {gpu.bus} has no index of its own (dev); the next free one is taken",
                )
                gpu.name = ""
            else:
                gpu.name = ""
        free = (number for number in range(len(self._gpus) + len(taken)) if number not in taken)
        for gpu in self._gpus:
            gpu.name = gpu.name or str(next(free))
        return max(int(gpu.name) for gpu in self._gpus) + 1

    def _nvlinks(self) -> tuple[dict[Pair, int], bool]:
        """Links by pair, and whether they go through a switch: then every two GPUs on it are joined by the fewer."""
        index = {gpu.bus: int(gpu.name) for gpu in self._gpus}
        ends: dict[Pair, dict[int, int]] = {}
        switched: Counter[int] = Counter()
        for gpu in self._gpus:
            own = int(gpu.name)
            for link in gpu.element.children:
                if link.tag not in ("nvlink", "xgmi"):
                    continue
                target, count = link.attributes.get("target", "").lower(), link.number("count") or 0
                if link.attributes.get("tclass", "").lower().startswith(_SWITCH):
                    switched[own] += count
                elif target in index and index[target] != own:
                    pair = (min(own, index[target]), max(own, index[target]))
                    ends.setdefault(pair, {})[own] = ends.get(pair, {}).get(own, 0) + count
                else:
                    self._note(
                        link.line,
                        f"{counted(count, 'link')} of GPU {own} to {target or 'nothing'}, no GPU of this file: not "
                        "counted",
                    )
        found = {pair: min(sides.values()) for pair, sides in ends.items()}
        for pair, sides in ends.items():
            if len(set(sides.values())) > 1 or len(sides) < 2:
                one, other = (sides.get(side, 0) for side in pair)
                self._note(
                    None,
                    f"GPU {pair[0]} names {one} links to GPU {pair[1]}, which names {other} back; the fewer count",
                )
                found[pair] = min(one, other) or max(one, other)
        usual = Counter(switched.values()).most_common(1)[0][0] if switched else 0
        for own, count in sorted(switched.items()):
            if count < usual:
                self._note(
                    None,
                    f"GPU {own} has {count} links to the NVSwitch, most have {usual}: slower than the others",
                )
        members = sorted(switched)
        found |= {(a, b): min(switched[a], switched[b]) for a in members for b in members if a < b}
        return found, bool(switched) and len(set(switched.values())) == 1

    def _note_links(
        self, islands: dict[int, str], weak: dict[Pair, tuple[int, int]], links: dict[Pair, int]
    ) -> None:
        if not links and len(self._gpus) > 1:
            if any(gpu.element.tag == "gpu" for gpu in self._gpus):
                return
            self._note(
                self._gpus[0].element.line,
                "GPUs are PCI devices without a gpu element, so NVLinks are not in the file: the island is unknown",
            )
        none = [pair for pair, (number, _) in weak.items() if number == 0]
        thin = [(pair, found) for pair, found in weak.items() if found[0]]
        for (one, other), (number, usual) in thin[:8]:
            self._note(
                None,
                f"{number} links join GPU {one} and GPU {other}, {usual} most pairs: slower than the others",
            )
        if none:
            self._note(
                None,
                f"{counted(len(none), 'pair')} of one island have no link of their own (GPU {none[0][0]} and GPU "
                f"{none[0][1]} first): rings fit, direct transfers leave the island's links",
            )

    def _rails(self) -> dict[int, tuple[str, ...]]:
        found: dict[int, tuple[str, ...]] = {}
        for gpu in self._gpus:
            if self._nics:
                distances = {nic.name: _distance(gpu.path, nic.path) for nic in self._nics}
                best = min(distances.values())
                found[int(gpu.name)] = tuple(
                    sorted((name for name, far in distances.items() if far == best), key=natural_key)
                )
        return found

    def _accelerator(self) -> str | None:
        kinds = {_GCN.get(gpu.element.attributes.get("gcn", "").removeprefix("gfx")) for gpu in self._gpus}
        return kinds.pop() if len(kinds) == 1 else None

    def _links(self, node: Node) -> dict[Tier, Link]:
        found: dict[Tier, Link] = {}
        elements = [gpu.element for gpu in self._gpus]
        if node.islands:
            sm = elements[0].number("sm") or 0
            amd = any(link.tag == "xgmi" for element in elements for link in element.children)
            found[Tier.ISLAND] = Link(kind="infinity-fabric" if amd else nvlink_of_sm(sm))
        if len(node.islands) < node.accelerators or len(set(node.islands.values())) > 1:
            rates = Counter(gpu.path[-1].attributes.get("link_speed", "") for gpu in self._gpus)
            found[Tier.NODE] = Link(kind=pcie_of_rate(rates.most_common(1)[0][0]))
        used = {name for names in node.rails.values() for name in names}
        nics = [nic for nic in self._nics if nic.name in used and nic.gbps]
        if nics:
            speeds = [nic.gbps or 0 for nic in nics]
            usual = Counter((nic.gbps or 0, nic.infiniband) for nic in nics).most_common(1)[0][0]
            found[Tier.LEAF] = Link(
                kind=adapter_kind(usual[0], infiniband=usual[1]),
                bandwidth=min(speeds) * 1e9 / 8,
                uplink=sum(speeds) * 1e9 / 8,
            )
        return found

    def _note(self, line: int | None, message: str) -> None:
        self._problems.append(self._content.problem(line, message))


def _index(gpu: _Device) -> tuple[int, int]:
    number = gpu.element.number("dev")
    return (number if number is not None else 1 << 20, gpu.element.line)


def _distance(one: Sequence[Element], other: Sequence[Element]) -> int:
    """Of two devices: PCI steps between them, and far more across the CPU and again across sockets."""
    shared = 0
    for mine, theirs in zip(one, other, strict=False):
        if mine is not theirs:
            break
        shared += 1
    if shared == 0:
        return 2000
    if shared == 1:  # only the CPU
        return 1000
    return len(one) + len(other) - 2 * shared
