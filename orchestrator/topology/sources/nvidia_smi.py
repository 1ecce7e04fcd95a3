"""`nvidia-smi topo -m`, `topo -mp`, `topo -p2p` and `nvidia-smi -L`, as people paste them.

Formats: NVIDIA's nvidia-smi(1), and outputs of 2016 to 2026 (`SOC` became `SYS`, adapters were `mlx5_0` and became
`NIC0`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from orchestrator.spec.sections import Tier
from orchestrator.topology.fabric import Fabric, Node
from orchestrator.topology.links import Link
from orchestrator.topology.names import natural_key
from orchestrator.topology.sources.content import Content
from orchestrator.topology.sources.islands import Pair, islands_of, weak_pairs
from orchestrator.topology.sources.link_kinds import gpu_model, nvlink_of_model
from orchestrator.topology.sources.reading import Problem, Reading, counted, listed, shortened
from orchestrator.topology.sources.smi_matrix import (
    GPU,
    MAX_DEVICES,
    P2P,
    Matrix,
    heading,
    read_matrices,
    strange_cell,
)

NEARNESS = {"PIX": 0, "PXB": 1, "PSB": 1, "PHB": 2, "NODE": 3, "SYS": 4, "SOC": 4}
"""Paths over PCI Express, nearest first."""
_LISTED_GPU = re.compile(r"\bGPU (\d{1,4}): (.{1,120}?) \(UUID: ([^)]{1,80})\)")
_LISTED_MIG = re.compile(r"\bMIG (\S{1,40})\s+Device\s+(\d{1,3}): \(UUID: [^)]{1,120}\)")
_COMMAND = re.compile(r"nvidia-smi\s+topo\s+(-\S+)")


def recognises(content: Content) -> bool:
    if _LISTED_GPU.search(content.text):
        return True
    return any(heading(line) is not None for line in content.lines)


def read(content: Content) -> list[Reading]:
    """The inside of one node. InvalidFabricError where no row of the matrix is whole."""
    return [_Paste(content).reading()]


class _Paste:
    def __init__(self, content: Content) -> None:
        self._content = content
        self._problems: list[Problem] = []
        self._known = False
        """Whether some cell between GPUs is known."""
        self._most = 0
        """NVLinks of the pair with most."""
        self._matrices = read_matrices(self._content)

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

    def _of_matrix(self, matrix: Matrix, model: str | None) -> Node:
        gpus = {int(match[1]): name for name in matrix.devices if (match := GPU.fullmatch(name))}
        count = max(gpus) + 1
        if len(gpus) < count:
            missing = [f"GPU{index}" for index in range(count) if index not in gpus]
            self._note(matrix.line, f"{listed(missing)} has no column: taken to be there, with nothing known")
        self._check_whole(matrix, gpus)
        nics = [name for name in matrix.devices if not GPU.fullmatch(name)]
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

    def _check_whole(self, matrix: Matrix, gpus: dict[int, str]) -> None:
        wanted = len(matrix.devices)
        short = [name for name, row in matrix.rows.items() if len(row.cells) < wanted]
        whole = [name for name in gpus.values() if name in matrix.rows and name not in short]
        if not whole and (strange := strange_cell(matrix)) is not None:
            line, word = strange
            raise self._content.refuse(
                f"line {line}: {shortened(word, 20)!r} is no cell of nvidia-smi topo -m; those are X, NV#, PIX, PXB, "
                "PHB, NODE, SYS and N/A: this is another tool's matrix"
            )
        if not whole:
            raise self._content.refuse(
                f"line {matrix.last}: no row of a GPU has all {wanted} cells of the heading: the file was cut off"
            )
        missing = [name for name in gpus.values() if name not in matrix.rows]
        for name in short:
            if not matrix.rows[name].cells:
                self._note(
                    matrix.rows[name].line, f"the row {name} has no X in its own column: it is not read"
                )
            else:
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
        nics = [name for name in matrix.devices if not GPU.fullmatch(name) and name not in matrix.rows]
        if nics and not missing:
            self._note(matrix.last, f"columns without rows, read from the rows of the GPUs: {listed(nics)}")

    def _pairs(self, matrix: Matrix, gpus: dict[int, str]) -> dict[Pair, str]:
        found: dict[Pair, str] = {}
        for one, name in gpus.items():
            for other, other_name in gpus.items():
                if one >= other:
                    continue
                cell, mirror = matrix.cell(name, other_name), matrix.cell(other_name, name)
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
        self, matrix: Matrix, count: int, cells: dict[Pair, str], links: dict[Pair, int]
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
        matrix: Matrix,
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

    def _rails(self, matrix: Matrix, gpus: dict[int, str], nics: Iterable[str]) -> dict[int, tuple[str, ...]]:
        found: dict[int, tuple[str, ...]] = {}
        for index, name in gpus.items():
            cells = {nic: matrix.cell(name, nic) for nic in nics}
            near = {nic: NEARNESS[cell] for nic, cell in cells.items() if cell in NEARNESS}
            if near and None not in cells.values():
                best = min(near.values())
                found[index] = tuple(sorted((nic for nic in near if near[nic] == best), key=natural_key))
        return found

    def _note_affinity(self, matrix: Matrix, gpus: dict[int, str], cells: dict[Pair, str]) -> None:
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
                {cell for row in matrix.rows.values() for cell in row.cells if cell in P2P and cell != "OK"}
            )
            if bad:
                self._note(
                    matrix.line,
                    f"peer-to-peer access is {'/'.join(bad)}: GPUs exchange data through host memory",
                )

    def _note(self, line: int | None, message: str) -> None:
        self._problems.append(self._content.problem(line, message))


def _cpus(rest: str) -> str:
    """The CPU list right behind the matrix; empty where the cell is."""
    first = rest.split("\t")[0].strip() if "\t" in rest else rest.strip().split(" ")[0]
    return first if re.fullmatch(r"\d+(?:-\d+)?(?:,\d+(?:-\d+)?)*", first) else ""


def _distance(cell: str) -> int:
    """Larger is worse."""
    return -int(cell[2:]) if cell.startswith("NV") else NEARNESS.get(cell, 9)
