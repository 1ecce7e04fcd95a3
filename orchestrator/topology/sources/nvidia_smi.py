"""`nvidia-smi topo -m`, `topo -mp`, `topo -p2p` and `nvidia-smi -L`, as people paste them.

A matrix has a heading with a column per device and a row per device; the tool separates by tabs, pastes often
by blanks. Cells of the matrix are never blank, cells behind it (CPU and NUMA affinity) may be: so cells are
read from the left, and the `X` of each row must stand in the row's own column. Formats: NVIDIA's nvidia-
smi(1), and outputs of 2016 to 2026 (`SOC` became `SYS`, adapters were `mlx5_0` and became `NIC0`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from orchestrator.spec.sections import Tier
from orchestrator.topology.fabric import Fabric, Node
from orchestrator.topology.links import Link
from orchestrator.topology.names import natural_key
from orchestrator.topology.sources.content import Content
from orchestrator.topology.sources.islands import Pair, islands_of, weak_pairs
from orchestrator.topology.sources.link_kinds import gpu_model, nvlink_of_model
from orchestrator.topology.sources.reading import Problem, Reading, counted, listed

MAX_DEVICES = 256
NEARNESS = {"PIX": 0, "PXB": 1, "PSB": 1, "PHB": 2, "NODE": 3, "SYS": 4, "SOC": 4}
"""Paths over PCI Express, nearest first."""
_P2P = frozenset({"OK", "CNS", "GNS", "TNS", "NS", "DR", "U"})
_GPU = re.compile(r"GPU?(\d{1,3})\.?")
_CELL = re.compile(r"X|NV\d{1,3}|PIX|PXB|PSB|PHB|NODE|SYS|SOC|N/A|OK|CNS|GNS|TNS|NS|DR|U")
_TITLES = re.compile(r"(?i)\b(?:CPU\s+Affinity|NUMA\s+Affinity|GPU\s+NUMA\s+ID)\b|(?:CPU|NUMA)\s+Affinity")
_DEVICE = re.compile(r"[A-Za-z][\w.:-]*")
_GLUED = re.compile(r"GPU\d+|NIC\d+|mlx\d+_(?:bond_)?\d+")
_LISTED_GPU = re.compile(r"\bGPU (\d{1,4}): (.{1,120}?) \(UUID: ([^)]{1,80})\)")
_LISTED_MIG = re.compile(r"\bMIG (\S{1,40})\s+Device\s+(\d{1,3}): \(UUID: [^)]{1,120}\)")
_COMMAND = re.compile(r"nvidia-smi\s+topo\s+(-\S+)")


@dataclass(slots=True)
class _Row:
    line: int
    cells: list[str | None]
    rest: str


@dataclass(slots=True)
class _Matrix:
    line: int
    devices: list[str]
    rows: dict[str, _Row] = field(default_factory=dict)
    last: int = 0
    """Last line that belongs to it."""

    @property
    def is_p2p(self) -> bool:
        return any(cell in _P2P for row in self.rows.values() for cell in row.cells)


def recognises(content: Content) -> bool:
    if _LISTED_GPU.search(content.text):
        return True
    return any(_heading(line) is not None for line in content.lines)


def read(content: Content) -> list[Reading]:
    """The inside of one node. InvalidFabricError where no row of the matrix is whole."""
    return [_Paste(content).reading()]


def _heading(line: str) -> list[str] | None:
    """Devices of the columns, if `line` is a heading."""
    found: list[str] = []
    for word in _TITLES.sub(" ", line).split():
        glued = _GLUED.findall(word)
        for name in glued if "".join(glued) == word else [word]:
            if not _DEVICE.fullmatch(name) or _CELL.fullmatch(name):
                return None
            found.append(_GPU.sub(r"GPU\1", name) if _GPU.fullmatch(name) else name)
    if "GPU0" not in found or len(set(found)) != len(found) or len(found) > MAX_DEVICES:
        return None
    return found


class _Paste:
    def __init__(self, content: Content) -> None:
        self._content = content
        self._problems: list[Problem] = []
        self._known = False
        """Whether some cell between GPUs is known."""
        self._most = 0
        """NVLinks of the pair with most."""
        self._matrices = self._read_matrices()

    def _read_matrices(self) -> list[_Matrix]:
        found: list[_Matrix] = []
        current: _Matrix | None = None
        for number, line in enumerate(self._content.lines, start=1):
            devices = _heading(line)
            if devices is not None:
                current = _Matrix(number, devices, last=number)
                found.append(current)
            elif current is not None and line.strip():
                row = _row(current.devices, line, number)
                if row is None:
                    current = None
                else:
                    current.rows.setdefault(row[0], row[1])
                    current.last = number
        return found

    def reading(self) -> Reading:
        models, partitioned = self._listed()
        matrices = [matrix for matrix in self._matrices if matrix.rows and not matrix.is_p2p]
        if not matrices and not models:
            line = self._matrices[0].line if self._matrices else 1
            raise self._content.refuse(
                f"line {line}: a matrix begins here and has no row: the file was cut off"
            )
        if len(matrices) > 1:
            self._note(
                matrices[1].line, "a second matrix begins here; one file is of one node, so it is not read"
            )
        kinds = set(models.values())
        model = kinds.pop() if len(kinds) == 1 else None
        node = self._of_matrix(matrices[0], model) if matrices else Node("", max(models) + 1)
        if matrices and models and len(models) != node.accelerators:
            self._note(
                None, f"the list has {len(models)} GPUs and the matrix {node.accelerators}; the matrix counts"
            )
        self._note_p2p()
        node = Node(
            "",
            node.accelerators,
            islands={index: name for index, name in node.islands.items() if index not in partitioned},
            accelerator=model,
            rails=node.rails,
            weak_pairs=node.weak_pairs,
            partitioned=frozenset(partitioned),
        )
        return Reading("nvidia-smi", Fabric((node,), self._links(node)), tuple(self._problems), inside=True)

    def _links(self, node: Node) -> dict[Tier, Link]:
        found: dict[Tier, Link] = {}
        if node.islands:
            found[Tier.ISLAND] = Link(kind=nvlink_of_model(node.accelerator, self._most) or "nvlink")
        if self._known and (len(node.islands) < node.accelerators or len(set(node.islands.values())) > 1):
            found[Tier.NODE] = Link(kind="pcie")
        return found

    def _of_matrix(self, matrix: _Matrix, model: str | None) -> Node:
        gpus = {int(match[1]): name for name in matrix.devices if (match := _GPU.fullmatch(name))}
        count = max(gpus) + 1
        if len(gpus) < count:
            missing = [f"GPU{index}" for index in range(count) if index not in gpus]
            self._note(matrix.line, f"{listed(missing)} has no column: taken to be there, with nothing known")
        self._check_whole(matrix, gpus)
        nics = [name for name in matrix.devices if not _GPU.fullmatch(name)]
        cells = {pair: cell for pair, cell in self._pairs(matrix, gpus).items() if cell != "N/A"}
        links = {pair: int(cell[2:]) for pair, cell in cells.items() if cell.startswith("NV")}
        self._known, self._most = bool(cells), max(links.values(), default=0)
        islands = self._islands(matrix, count, cells, links)
        weak = weak_pairs(islands, links)
        self._note_weak(matrix, weak, islands, links)
        self._note_affinity(matrix, gpus, cells)
        return Node(
            "",
            count,
            islands=islands,
            rails=self._rails(matrix, gpus, nics),
            weak_pairs=frozenset(weak),
            accelerator=model,
        )

    def _check_whole(self, matrix: _Matrix, gpus: dict[int, str]) -> None:
        wanted = len(matrix.devices)
        short = [name for name, row in matrix.rows.items() if len(row.cells) < wanted]
        whole = [name for name in gpus.values() if name in matrix.rows and name not in short]
        if not whole:
            raise self._content.refuse(
                f"line {matrix.last}: no row of a GPU has all {wanted} cells of the heading: the file was cut off"
            )
        missing = [name for name in gpus.values() if name not in matrix.rows]
        for name in short:
            if matrix.rows[name].cells:
                cells = len(matrix.rows[name].cells)
                self._note(
                    matrix.rows[name].line,
                    f"the row {name} ends after {cells} of {wanted} cells: the rest is unknown",
                )
        if missing:
            self._note(
                matrix.last,
                f"the matrix ends before the rows {listed(missing)}: their adapters, and links among them, are unknown",
            )
        nics = [name for name in matrix.devices if not _GPU.fullmatch(name) and name not in matrix.rows]
        if nics and not missing:
            self._note(matrix.last, f"columns without rows, read from the rows of the GPUs: {listed(nics)}")

    def _cell(self, matrix: _Matrix, row: str, column: str) -> str | None:
        """The cell, or its mirror image."""
        for one, other in ((row, column), (column, row)):
            found = matrix.rows.get(one)
            position = matrix.devices.index(other)
            if found is not None and position < len(found.cells) and found.cells[position] is not None:
                return found.cells[position]
        return None

    def _pairs(self, matrix: _Matrix, gpus: dict[int, str]) -> dict[Pair, str]:
        found: dict[Pair, str] = {}
        for one, name in gpus.items():
            for other, other_name in gpus.items():
                if one >= other:
                    continue
                cell, mirror = self._cell(matrix, name, other_name), self._cell(matrix, other_name, name)
                if cell is None or mirror is None:
                    continue
                if cell != mirror:
                    self._note(
                        matrix.rows[other_name].line,
                        f"{name} to {other_name} is {cell} one way and {mirror} the other; the worse counts",
                    )
                    cell = max(cell, mirror, key=_distance)
                found[one, other] = cell
        return found

    def _islands(
        self, matrix: _Matrix, count: int, cells: dict[Pair, str], links: dict[Pair, int]
    ) -> dict[int, str]:
        if count > 1 and not cells:
            self._note(
                matrix.line,
                "every cell between GPUs is N/A: which GPUs NVLink joins is unknown, so is the island",
            )
            return {}
        hides = any(option.startswith("-mp") for option in _COMMAND.findall(self._content.text))
        if hides and not links:
            self._note(
                matrix.line,
                "topo -mp shows no NVLink: which GPUs it joins is unknown, so is the island; topo -m shows it",
            )
            return {}
        islands = islands_of(count, links)
        sizes = [list(islands.values()).count(name) for name in sorted(set(islands.values()))]
        if len(sizes) > 1:
            text = " and ".join(map(str, sizes))
            self._note(
                matrix.line,
                f"NVLink joins GPUs in {len(sizes)} islands ({text}): a wider tensor group leaves NVLink",
            )
        return islands

    def _note_weak(
        self,
        matrix: _Matrix,
        weak: dict[Pair, tuple[int, int]],
        islands: dict[int, str],
        links: dict[Pair, int],
    ) -> None:
        thin = [(pair, found) for pair, found in weak.items() if found[0]]
        none = [pair for pair, found in weak.items() if not found[0]]
        for (one, other), (number, usual) in thin[:8]:
            row = matrix.rows.get(f"GPU{one}") or matrix.rows.get(f"GPU{other}")
            self._note(
                row.line if row else matrix.line,
                f"{counted(number, 'NVLink joins', 'NVLinks join')} GPU{one} and GPU{other}, {usual} most pairs",
            )
        if len(thin) > 8:
            self._note(matrix.line, f"{len(thin) - 8} more pairs have fewer NVLinks than most")
        if none:
            self._note(
                matrix.line,
                f"{counted(len(none), 'pair')} of one island have no NVLink of their own (GPU{none[0][0]} and "
                f"GPU{none[0][1]} first): rings fit, direct transfers leave NVLink",
            )
        for name in sorted(set(islands.values())):
            members = [index for index, island in islands.items() if island == name]
            if len(members) == 2 and links.get((members[0], members[1])) == 3:
                self._note(
                    matrix.rows[f"GPU{members[0]}"].line
                    if f"GPU{members[0]}" in matrix.rows
                    else matrix.line,
                    f"3 NVLinks join GPU{members[0]} and GPU{members[1]}; a bridge has 4: one that is badly "
                    "seated looks so, and the pair is slower",
                )

    def _rails(
        self, matrix: _Matrix, gpus: dict[int, str], nics: Iterable[str]
    ) -> dict[int, tuple[str, ...]]:
        found: dict[int, tuple[str, ...]] = {}
        for index, name in gpus.items():
            cells = {nic: self._cell(matrix, name, nic) for nic in nics}
            near = {nic: NEARNESS[cell] for nic, cell in cells.items() if cell in NEARNESS}
            if near and None not in cells.values():
                best = min(near.values())
                found[index] = tuple(sorted((nic for nic in near if near[nic] == best), key=natural_key))
        return found

    def _note_affinity(self, matrix: _Matrix, gpus: dict[int, str], cells: dict[Pair, str]) -> None:
        rests = {name: matrix.rows[name].rest for name in gpus.values() if name in matrix.rows}
        cpus = {name: _cpus(rest) for name, rest in rests.items()}
        known = {cpu for cpu in cpus.values() if cpu}
        if len(cpus) > 1 and len(known) == 1 and all(cpus.values()) and "SYS" in cells.values():
            self._note(
                matrix.line,
                f"all GPUs name the CPUs {known.pop()} though some are on other sockets (SYS): the affinity is wrong",
            )
        empty = [
            name
            for name, cpu in cpus.items()
            if not cpu and len(matrix.rows[name].cells) == len(matrix.devices)
        ]
        if known and empty:
            self._note(
                matrix.rows[empty[0]].line, f"no CPU is near {listed(empty)}: the container leaves them none"
            )

    def _listed(self) -> tuple[dict[int, str | None], set[int]]:
        """Model by GPU of `nvidia-smi -L`, and the GPUs that MIG cuts."""
        models: dict[int, str | None] = {}
        parts: dict[int, list[tuple[int, str]]] = {}
        current: int | None = None
        for number, line in enumerate(self._content.lines, start=1):
            gpu, part = _LISTED_GPU.search(line), _LISTED_MIG.search(line)
            if gpu is not None and int(gpu[1]) < MAX_DEVICES:
                current = int(gpu[1])
                models.setdefault(current, gpu_model(gpu[2]))
            elif part is not None and current is not None:
                parts.setdefault(current, []).append((number, part[1]))
        for index, found in parts.items():
            profiles = ", ".join(profile for _, profile in found)
            self._note(
                found[0][0],
                f"GPU {index} is cut into {counted(len(found), 'MIG device')} ({profiles}): no rank gets it whole",
            )
        return models, set(parts)

    def _note_p2p(self) -> None:
        for matrix in self._matrices:
            if not matrix.is_p2p:
                continue
            bad = sorted(
                {cell for row in matrix.rows.values() for cell in row.cells if cell in _P2P and cell != "OK"}
            )
            if bad:
                self._note(
                    matrix.line,
                    f"peer-to-peer access is {'/'.join(bad)}: GPUs exchange data through host memory",
                )

    def _note(self, line: int | None, message: str) -> None:
        self._problems.append(self._content.problem(line, message))


def _row(devices: list[str], line: str, number: int) -> tuple[str, _Row] | None:
    """Name and cells of a row; None for a line that is none."""
    words = line.split()
    name = _GPU.sub(r"GPU\1", words[0]) if _GPU.fullmatch(words[0]) else words[0]
    if name not in devices:
        return None
    rest = line.lstrip()[len(words[0]) :]
    position = devices.index(name)
    for cells, behind in (_by_tabs(rest, len(devices)), _from_left(rest, len(devices))):
        marks = [index for index, cell in enumerate(cells) if cell == "X"]
        if marks == [position] or (not marks and len(cells) <= position and cells):
            return name, _Row(number, cells, behind)
    return name, _Row(number, [], rest)


def _by_tabs(text: str, count: int) -> tuple[list[str | None], str]:
    """Cells between tabs, where an empty one is unknown; nothing where that is not how the row is written."""
    parts = [part.strip() for part in text.removeprefix("\t").split("\t")]
    cells = parts[:count]
    if len(cells) < count or not all(not cell or _CELL.fullmatch(cell) for cell in cells):
        return [], text
    return [cell or None for cell in cells], "\t".join(parts[count:])


def _from_left(text: str, count: int) -> tuple[list[str | None], str]:
    """Cells one after the other, glued ones (`NV18NV18`) too, up to `count` or the first that is none."""
    cells: list[str | None] = []
    at = 0
    while len(cells) < count:
        while at < len(text) and text[at] in " \t.":
            at += 1
        cell = _CELL.match(text, at)
        if cell is None:
            break
        cells.append(cell[0])
        at = cell.end()
    return cells, text[at:].removeprefix("\t")


def _cpus(rest: str) -> str:
    """The CPU list right behind the matrix; empty where the cell is."""
    first = rest.split("\t")[0].strip() if "\t" in rest else rest.strip().split(" ")[0]
    return first if re.fullmatch(r"\d+(?:-\d+)?(?:,\d+(?:-\d+)?)*", first) else ""


def _distance(cell: str) -> int:
    """Larger is worse."""
    return -int(cell[2:]) if cell.startswith("NV") else NEARNESS.get(cell, 9)
