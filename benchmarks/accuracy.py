"""The estimate against published runs: writes docs/accuracy.md from the tables in a folder.

    python benchmarks/accuracy.py --tables FOLDER [--out docs/accuracy.md]

Nothing is fitted to these rows: what programs get of the hardware comes from `orchestrator/estimate/hardware.yaml`,
each number with its source. The text between the tables is written by hand; its figures are computed here.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import published
from published import Run, rows

from orchestrator.estimate.network import default_network
from orchestrator.estimate.rank_memory import activation_bytes, layer_bytes
from orchestrator.estimate.stages import stages_of
from orchestrator.estimate.step import rank_parameters, stage_layers, step_seconds
from orchestrator.estimate.workload import Again, Stack, Workload

BARS = {
    "korthikanti": "mean ≤ 5 %, largest ≤ 12 %",
    "sc21": "mean ≤ 10 %",
    "memory": "mean ≤ 8 %",
    "torchtitan": "mean ≤ 15 %",
}
MEGATRON_BYTES = 18
"""A parameter in Megatron-LM's mixed precision: weight 2, gradient in fp32 4, fp32 weight and two moments 12."""
GIB = 2.0**30


@dataclass(frozen=True, slots=True)
class Row:
    name: str
    predicted: float
    published: float

    @property
    def error(self) -> float:
        return self.predicted / self.published - 1


def steps(runs: Iterable[Run]) -> list[Row]:
    found = []
    for run in runs:
        network = default_network(run.device, run.work.plan.world_size)
        found.append(Row(run.name, step_seconds(run.work, run.device, network).total, run.step_s))
    return found


def memory(folder: Path) -> list[Row]:
    """Korthikanti et al. 2022, figure 1 (GiB a GPU) and figure 7 (activations, % of those without any saving)."""
    shapes = {row["model"]: row for row in rows(folder / "korthikanti_table5.csv")}
    found = []
    for row in rows(folder / "korthikanti_memory_fig1_fig7.csv"):
        shape, name = shapes[row["model"]], row["model"]
        plain = _megatron(shape, sequence=False, again=Again.NOTHING)
        saving = _megatron(shape, sequence=True, again=Again.ATTENTION)
        states = MEGATRON_BYTES * _parameters(plain) / GIB
        found.append(Row(f"{name}, states, GiB", states, float(row["params_opt_gib_per_gpu"])))
        for what, work, column in (
            ("activations", plain, "act_gib_no_sp_no_recompute"),
            ("activations, both savings", saving, "act_gib_sp_selective"),
        ):
            found.append(Row(f"{name}, {what}, GiB", activation_bytes(work) / GIB, float(row[column])))
        base = layer_bytes(plain, Again.NOTHING, experts=False)
        for what, sequence, again, column in (
            ("sequence parallel", True, Again.NOTHING, "rel_seqpar_pct"),
            ("selective", False, Again.ATTENTION, "rel_selective_pct"),
            ("both", True, Again.ATTENTION, "rel_seqpar_selective_pct"),
            ("full recompute", False, Again.LAYER, "rel_full_pct"),
        ):
            kept = layer_bytes(_megatron(shape, sequence=sequence, again=again), again, experts=False)
            found.append(Row(f"{name}, {what}, % of none", 100 * kept / base, float(row[column])))
    return found


def _megatron(shape: dict[str, str], *, sequence: bool, again: Again) -> Workload:
    stack: Stack = published.MEGATRON_2022
    virtual = int(shape["interleave"])
    return published.megatron(shape, dp=1, virtual=virtual, sequence=sequence, again=again, stack=stack)


def _parameters(work: Workload) -> float:
    """Of the first pipeline rank, which the figure is about."""
    assert 0 in stages_of(work.plan, 0)
    return sum(rank_parameters(work.architecture, work.plan, stage_layers(work.architecture, work.plan), 0))


def mean(found: Sequence[Row]) -> float:
    return sum(abs(row.error) for row in found) / len(found)


def largest(found: Sequence[Row]) -> float:
    return max(abs(row.error) for row in found)


def met(found: dict[str, list[Row]]) -> dict[str, bool]:
    return {
        "korthikanti": mean(found["korthikanti"]) <= 0.05 and largest(found["korthikanti"]) <= 0.12,
        "sc21": mean(found["sc21"]) <= 0.10,
        "memory": mean(found["memory"]) <= 0.08,
        "torchtitan": mean(found["torchtitan"]) <= 0.15,
    }


def every(folder: Path) -> dict[str, list[Row]]:
    return {
        "korthikanti": steps(published.korthikanti(folder)),
        "sc21": steps(published.sc21(folder)),
        "memory": memory(folder),
        "torchtitan": steps(published.torchtitan(folder)),
    }


def page(folder: Path, found: dict[str, list[Row]]) -> str:
    text = (Path(__file__).parent / "accuracy.md.in").read_text(encoding="utf-8")
    calculon = rows(folder / "calculon_rerun.csv")
    errors = [float(row["err_pct"]) for row in calculon]
    filled = {
        "SUMMARY": _summary(found, sum(errors) / len(errors), max(errors)),
        "KORTHIKANTI": _table(found["korthikanti"], "s", [f"{error:.1f} %" for error in errors]),
        "SC21": _table(found["sc21"], "s"),
        "MEMORY": _table(found["memory"], ""),
        "TORCHTITAN": _table(found["torchtitan"], "s"),
    }
    for name, value in filled.items():
        text = text.replace(f"{{{{{name}}}}}", value)
    return text


def _summary(found: dict[str, list[Row]], calculon_mean: float, calculon_max: float) -> str:
    names = {
        "korthikanti": "Korthikanti et al. 2022, table 5: step time",
        "sc21": "Narayanan et al. 2021, table 1: step time",
        "memory": "Korthikanti et al. 2022, figures 1 and 7: memory",
        "torchtitan": "torchtitan, Llama 3 on H100: step time",
    }
    good = met(found)
    lines = ["| published | rows | mean error | largest | bar | |", "| --- | --- | --- | --- | --- | --- |"]
    for key, name in names.items():
        verdict = "met" if good[key] else "**missed**"
        of = found[key]
        lines.append(f"| {name} | {len(of)} | {mean(of):.1%} | {largest(of):.1%} | {BARS[key]} | {verdict} |")
    lines.append("")
    lines.append(
        f"Calculon on the first table, run again for comparison: mean {calculon_mean:.1f} %, "
        f"largest {calculon_max:.1f} %."
    )
    return "\n".join(lines)


def _table(found: Sequence[Row], unit: str, beside: Sequence[str] = ()) -> str:
    of = f", {unit}" if unit else ""
    head = ["run", f"published{of}", f"predicted{of}", "error", *(["Calculon, absolute"] if beside else [])]
    lines = [f"| {' | '.join(head)} |", f"|{' --- |' * len(head)}"]
    for position, row in enumerate(found):
        cells = [row.name, f"{row.published:.2f}", f"{row.predicted:.2f}", f"{100 * row.error:+.1f} %"]
        cells += [beside[position]] if beside else []
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tables", type=Path, required=True, metavar="FOLDER")
    parser.add_argument(
        "--out",
        type=Path,
        default=Path(__file__).resolve().parents[1] / "docs" / "accuracy.md",
        metavar="FILE",
    )
    asked = parser.parse_args()
    found = every(asked.tables)
    asked.out.write_text(page(asked.tables, found), encoding="utf-8")
    good = met(found)
    for key, of in found.items():
        print(f"{key}: mean {mean(of):.2%}, largest {largest(of):.2%} (bar {BARS[key]})")
    print(f"accuracy {sum(good.values())} of {len(good)} bars met")
    return 0 if all(good.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
