"""nvidia-smi's matrices and lists, in shapes that people paste."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from orchestrator.spec.sections import Tier
from orchestrator.topology.combine import Combined
from orchestrator.topology.fabric import Node
from tests.orchestrator.topology.conftest import Read, Refusal


def only(combined: Combined) -> Node:
    (node,) = combined.fabric.nodes
    return node


def matrix(
    count: int, cell: Callable[[int, int], str], *, between: str = "\t", nics: int = 0, tail: str = "0-63"
) -> str:
    """A matrix of GPUs whose adapters are one each, `NICi` next to `GPUi`."""
    names = [f"GPU{i}" for i in range(count)] + [f"NIC{i}" for i in range(nics)]
    lines = [between.join(["", *names, "CPU Affinity"])]
    for row, name in enumerate(names):
        cells = []
        for column in range(len(names)):
            if row == column:
                cells.append(" X ")
            elif row < count and column < count:
                cells.append(cell(row, column))
            else:
                near = (row - count if row >= count else row) == (
                    column - count if column >= count else column
                )
                cells.append("PIX" if near else "SYS")
        lines.append(between.join([name, *cells, tail if row < count else ""]))
    return "\n".join(lines)


def nvlink(number: int) -> Callable[[int, int], str]:
    return lambda row, column: f"NV{number}"


@pytest.mark.parametrize("between", ["\t", "  ", "\t\t"])
def test_tabs_or_blanks(between: str, read: Read) -> None:
    node = only(read(n0=matrix(4, nvlink(18), between=between, nics=4)))
    assert (node.accelerators, node.domains) == (4, {Tier.ISLAND: "n0"})
    assert node.rails == {index: (f"NIC{index}",) for index in range(4)}


def test_cells_glued_to_one_another(read: Read) -> None:
    text = "GPU0GPU1NIC0CPU Affinity\nGPU0 X NV12PIX0-31\nGPU1 NV12 X SYS32-63\nNIC0 PIXSYS X\n"
    node = only(read(n0=text))
    assert (node.accelerators, node.domains) == (2, {Tier.ISLAND: "n0"})
    assert node.rails == {0: ("NIC0",), 1: ("NIC0",)}


def test_an_empty_cell_is_unknown_and_shifts_nothing(read: Read) -> None:
    text = "\tGPU0\tGPU1\tGPU2\tNIC0\nGPU0\tX\tNV4\t\tPIX\nGPU1\tNV4\tX\tSYS\tSYS\nGPU2\t\tSYS\tX\tPHB\n"
    node = only(read(n0=text))
    assert node.islands == {0: "n0/island0", 1: "n0/island0"}
    assert node.rails == {0: ("NIC0",), 1: ("NIC0",), 2: ("NIC0",)}


def test_colours_prompt_and_legend(read: Read) -> None:
    body = matrix(2, nvlink(12)).replace("GPU0", "\x1b[1;4mGPU0\x1b[0m", 1)
    text = f"user@host:~$ nvidia-smi topo -m\n{body}\n\nLegend:\n\n  X    = Self\n  NV#  = bonded set of # NVLinks\n"
    assert only(read(n0=text)).accelerators == 2


def test_a_legend_of_adapters_is_no_row(read: Read) -> None:
    text = matrix(2, nvlink(18), nics=2) + "\n\nNIC Legend:\n\n  NIC0: mlx5_0\n  NIC1: mlx5_1\n"
    combined = read(n0=text)
    assert only(combined).rails == {0: ("NIC0",), 1: ("NIC1",)}
    assert combined.problems == ()


def test_the_model_makes_the_link_class_known(read: Read) -> None:
    listed = "".join(f"GPU {i}: NVIDIA {{}} (UUID: GPU-{i})\n" for i in range(2))
    for model, links, kind in (
        ("H100 80GB HBM3", 18, "nvlink4"),
        ("H100 PCIe", 12, "nvlink4-bridge"),
        ("A100-SXM4-40GB", 12, "nvlink3"),
        ("GB200", 18, "nvlink5"),
    ):
        combined = read(n0=listed.replace("{}", model) + matrix(2, nvlink(links)))
        assert combined.fabric.links[Tier.ISLAND].kind == kind
    assert read(n0=matrix(2, nvlink(18))).fabric.links[Tier.ISLAND].kind == "nvlink"


def test_a_row_that_is_cut_gives_no_adapter(read: Read) -> None:
    lines = matrix(4, nvlink(18), nics=4).split("\n")
    combined = read(n0="\n".join([*lines[:3], lines[3][: lines[3].index("SYS")]]))
    assert only(combined).rails == {0: ("NIC0",), 1: ("NIC1",)}
    assert only(combined).domains == {Tier.ISLAND: "n0"}
    assert [problem.line for problem in combined.problems][:2] == [4, 4]


def test_a_matrix_without_a_whole_row_is_refused(refusal: Refusal) -> None:
    lines = matrix(4, nvlink(18)).split("\n")
    assert "the file was cut off" in refusal(lines[0])
    assert "no row of a GPU has all 4 cells" in refusal(lines[0] + "\n" + lines[1][:9])


def test_directions_that_differ(read: Read) -> None:
    combined = read(n0="\tGPU0\tGPU1\nGPU0\tX\tNV4\nGPU1\tNV3\tX\n")
    assert any(
        "GPU0 to GPU1 is NV4 one way and NV3 the other" in problem.message for problem in combined.problems
    )


def test_the_inside_of_many_nodes(read: Read) -> None:
    """One matrix for the nodes of a topology, by the name of each file."""
    combined = read(tree="SwitchName=s Nodes=n[0-1]\n", n0=matrix(8, nvlink(18)), n9=matrix(8, nvlink(18)))
    found = {node.name: (node.accelerators, dict(node.domains)) for node in combined.fabric.nodes}
    assert found == {
        "n0": (8, {Tier.ISLAND: "n0", Tier.LEAF: "s"}),
        "n1": (0, {Tier.LEAF: "s"}),
        "n9": (8, {Tier.ISLAND: "n9"}),
    }
    assert [problem.message for problem in combined.problems if problem.file == "n9"] == [
        "describes n9, which no other file names; NODES=FILE says which nodes it is of"
    ]


def test_a_tray_of_a_rack_does_not_end_the_island(read: Read) -> None:
    conf = "BlockName=rack1 Nodes=n[0-17]\n"
    combined = read(blocks=conf, n3=matrix(4, nvlink(18)))
    found = {node.name: dict(node.domains) for node in combined.fabric.nodes}
    assert found["n3"] == {Tier.ISLAND: "rack1"}
    assert combined.problems == ()


def test_pairs_in_a_node_that_was_called_one_island(read: Read) -> None:
    pairs = matrix(4, lambda row, column: "NV4" if row // 2 == column // 2 else "SYS")
    combined = read(blocks="BlockName=b Nodes=n0\n", n0=pairs)
    node = only(combined)
    assert set(node.islands.values()) == {"n0/island0", "n0/island1"}
    assert Tier.ISLAND not in node.domains
    assert any(
        "b is one island for all its accelerators in blocks, 2 islands in n0" in p.message
        for p in combined.problems
    )


def test_another_tool_s_matrix_is_refused_by_its_cell(refusal: Refusal) -> None:
    text = matrix(4, lambda i, j: "XGMI")
    assert "line 2: 'XGMI' is no cell of nvidia-smi topo -m" in refusal(text)
