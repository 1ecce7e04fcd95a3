"""The matrices that `nvidia-smi topo` prints: a heading with a column per device, and a row per device.

The tool separates by tabs, pastes often by blanks. Cells of the matrix are never blank in what the tool prints,
cells behind it (CPU and NUMA affinity) may be: so cells are read from the left, and the `X` of each row must
stand in the row's own column.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from orchestrator.topology.sources.content import Content

MAX_DEVICES = 256
MAX_LINE = 8_192
P2P = frozenset({"OK", "CNS", "GNS", "TNS", "NS", "DR", "U"})
"""Cells of `topo -p2p`."""
GPU = re.compile(r"GPU?(\d{1,3})\.?")
_CELL = re.compile(r"X|NV\d{1,3}|PIX|PXB|PSB|PHB|NODE|SYS|SOC|N/A|OK|CNS|GNS|TNS|NS|DR|U")
_TITLES = re.compile(r"(?:CPU|NUMA)\s*Affinity|GPU\s+NUMA\s+ID")
_DEVICE = re.compile(r"[A-Za-z][\w.:-]*")
_GLUED = re.compile(r"GPU\d+|NIC\d+|mlx\d+_(?:bond_)?\d+")


@dataclass(slots=True)
class Row:
    line: int
    cells: list[str | None]
    """None: blank. Fewer than the heading has columns: the row was cut."""
    rest: str
    """What stands behind the matrix."""


@dataclass(slots=True)
class Matrix:
    line: int
    devices: list[str]
    rows: dict[str, Row] = field(default_factory=dict)
    last: int = 0
    """Last line that belongs to it."""

    @property
    def is_p2p(self) -> bool:
        return any(cell in P2P for row in self.rows.values() for cell in row.cells)

    def cell(self, row: str, column: str) -> str | None:
        """What joins two devices, from either's row; None: unknown."""
        for one, other in ((row, column), (column, row)):
            found = self.rows.get(one)
            position = self.devices.index(other)
            if found is not None and position < len(found.cells) and found.cells[position] is not None:
                return found.cells[position]
        return None


def heading(line: str) -> list[str] | None:
    """Devices of the columns, if `line` is a heading."""
    # Cheap tests first: this is asked of every line of every file.
    if len(line) > MAX_LINE or not ("GPU0" in line or "GP0" in line):
        return None
    found: list[str] = []
    for word in _TITLES.sub(" ", line).split():
        glued = _GLUED.findall(word)
        for name in glued if "".join(glued) == word else [word]:
            if not _DEVICE.fullmatch(name) or _CELL.fullmatch(name):
                return None
            found.append(GPU.sub(r"GPU\1", name) if GPU.fullmatch(name) else name)
    if "GPU0" not in found or len(set(found)) != len(found) or len(found) > MAX_DEVICES:
        return None
    return found


def read_matrices(content: Content) -> list[Matrix]:
    """Every matrix in a text, in its order."""
    found: list[Matrix] = []
    current: Matrix | None = None
    for number, line in enumerate(content.lines, start=1):
        devices = heading(line)
        if devices is not None:
            current = Matrix(number, devices, last=number)
            found.append(current)
        elif current is not None and line.strip():
            row = _row(current.devices, line, number)
            if row is None:
                current = None
            else:
                current.rows.setdefault(row[0], row[1])
                current.last = number
    return found


def strange_cell(matrix: Matrix) -> tuple[int, str] | None:
    """Line and text of the first thing in a row's cells that is no cell; None where rows only end too soon."""
    for row in matrix.rows.values():
        if len(row.cells) < len(matrix.devices):
            for word in row.rest.split()[: len(matrix.devices) - len(row.cells)]:
                if not _CELL.fullmatch(word):
                    return row.line, word
    return None


def _row(devices: list[str], line: str, number: int) -> tuple[str, Row] | None:
    """Name and cells of a row; None for a line that is none."""
    words = line.split()
    name = GPU.sub(r"GPU\1", words[0]) if GPU.fullmatch(words[0]) else words[0]
    if name not in devices:
        return None
    rest = line.lstrip()[len(words[0]) :]
    position = devices.index(name)
    for cells, behind in (_by_tabs(rest, len(devices)), _from_left(rest, len(devices))):
        marks = [index for index, cell in enumerate(cells) if cell == "X"]
        if marks == [position] or (not marks and len(cells) <= position and cells):
            return name, Row(number, cells, behind)
    return name, Row(number, [], rest)


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
