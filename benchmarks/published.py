"""Training runs that others published, as workloads: the rows that `accuracy.py` holds the estimate against.

The tables are read from a folder (`--tables`); nothing of them is kept here. What the software of a run did comes from
its paper or its documentation, named at each `Stack`.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from orchestrator.estimate.hardware import Accelerator, accelerators
from orchestrator.estimate.workload import Again, Architecture, Stack, Workload
from orchestrator.spec.sections import ParallelismSpec, PipelineSchedule

MEGATRON_ORDER = ("tp", "cp", "dp", "pp")
"""Megatron-LM's ranks, inner to outer."""

MEGATRON_2021 = Stack(
    "Megatron-LM 2021",
    flash=False,
    fused=True,
    joined=True,
    residual=2,
    reduced=2,
    hides_dp=False,
    scatters_stages=True,
)
"""Narayanan et al. 2021: fused kernels (4.2), scatter and gather between stages (4.1), gradients in fp16 all-reduced
after backward (DistributedDataParallel of that version)."""

MEGATRON_2022 = replace(MEGATRON_2021, name="Megatron-LM 2022", hides_tp=True, gathers_again=True)
"""Korthikanti et al. 2022, 4.2.2: the input gathered again behind the gradient of inputs; that version's
`async_tensor_model_parallel_allreduce` behind the gradient of weights."""

TORCHTITAN = Stack("torchtitan", fused=False, residual=2, reduced=4, gathered=2)
"""Gathers in bf16, reduces in fp32 (`mixed_precision_param`, `mixed_precision_reduce`), collectives of tp in line."""


@dataclass(frozen=True)
class Run:
    """A published run with its step time."""

    name: str
    work: Workload
    device: Accelerator
    step_s: float


def korthikanti(folder: Path) -> Iterator[Run]:
    """Table 5: full recompute without, selective with sequence parallelism; no data parallelism."""
    for row in rows(folder / "korthikanti_table5.csv"):
        for again, sequence, column in (
            (Again.LAYER, False, "iter_s_full_recompute"),
            (Again.ATTENTION, True, "iter_s_seqpar_selective"),
        ):
            work = megatron(
                row,
                dp=int(row["dp_derived"]),
                virtual=int(row["interleave"]),
                sequence=sequence,
                again=again,
                stack=MEGATRON_2022,
            )
            name = f"{row['model']}, {'selective, sequence parallel' if sequence else 'full recompute'}"
            yield Run(name, work, accelerators()["A100-SXM-80GB"], float(row[column]))


def sc21(folder: Path) -> Iterator[Run]:
    """Table 1 of Narayanan et al. 2021; step times follow from the published FLOP/s."""
    for row in rows(folder / "megatron_sc21_table1.csv"):
        layers, pp = int(row["layers"]), int(row["pp"])
        per_stage = row["layers_per_virtual_stage"]
        work = megatron(
            row,
            dp=int(row["dp_derived"]),
            virtual=layers // pp // int(per_stage) if per_stage else 1,
            sequence=False,
            again=Again.LAYER,
            stack=MEGATRON_2021,
        )
        name = f"{row['params_B']}B, {row['gpus']} GPUs"
        yield Run(name, work, accelerators()["A100-SXM-80GB"], float(row["implied_iter_s_derived"]))


def megatron(
    row: dict[str, str], *, dp: int, virtual: int, sequence: bool, again: Again, stack: Stack
) -> Workload:
    layers, hidden, heads = (int(row[key]) for key in ("layers", "hidden", "heads"))
    pp, batch = int(row["pp"]), int(row["global_batch"])
    model = Architecture(
        layers,
        hidden,
        heads,
        heads,
        hidden // heads,
        4 * hidden,
        int(row["vocab"]),
        gated=False,
        dropout=True,
        tied=True,
    )
    plan = ParallelismSpec(
        tp=int(row["tp"]),
        pp=pp,
        dp=dp,
        sequence=sequence,
        schedule=PipelineSchedule.INTERLEAVED_1F1B if virtual > 1 else PipelineSchedule.ONE_F_ONE_B,
        virtual_stages=virtual,
        microbatches=batch // dp // int(row["micro_batch"]),
        layers_per_stage=(layers // (pp * virtual),) * (pp * virtual),
    )
    return Workload(model, plan, batch, int(row["seq"]), "fp16", again, 1, stack, axes=MEGATRON_ORDER)


LLAMA = {
    "8B": Architecture(32, 4096, 32, 8, 128, 14336, 128_256),
    "70B": Architecture(80, 8192, 64, 8, 128, 28672, 128_256),
    "405B": Architecture(126, 16384, 128, 8, 128, 53248, 128_256),
}
"""Dubey et al. 2024 (Llama 3), table 3."""


def torchtitan(folder: Path) -> Iterator[Run]:
    """torchtitan's benchmarks/llama3_h100_202412 and asyncTP_llama3_h100_2025-06."""
    for row in rows(folder / "torchtitan_llama3_h100_part.csv"):
        shards, tp, pp, cp = (int(row[key]) for key in ("fsdp", "tp", "pp", "cp"))
        local = int(row["local_batch"])
        plan = ParallelismSpec(
            tp=tp,
            pp=pp,
            dp=shards,
            cp=cp,
            zero=3 if shards * cp > 1 else 0,
            schedule=PipelineSchedule.ONE_F_ONE_B,
            # As many micro-batches as stages is the documented default of pipeline_parallel_microbatches.
            microbatches=pp,
        )
        again = {"full": Again.LAYER, "selective": Again.HALF, "": Again.HALF}[row["ac"]]
        if row["source"].startswith("torchtitan benchmarks/asyncTP") and "70B" in row["model"]:
            again = Again.LAYER  # "full AC", by the commands of that page
        work = Workload(
            LLAMA[row["model"].rpartition("-")[2]],
            plan,
            local * shards,
            int(row["seq"]),
            "bf16",
            again,
            1,
            _titan_stack(row),
        )
        per_s = float(row["tokens_per_s_per_gpu"]) * int(row["gpus"])
        yield Run(_titan_name(row), work, accelerators()["H100-SXM-96GB-500W"], work.step_tokens / per_s)


def _titan_stack(row: dict[str, str]) -> Stack:
    stack = replace(TORCHTITAN, fused=row["compile"] == "1", async_tp=row["async_tp"] == "1")
    if row["float8"] != "1":
        return stack
    rowwise = row["float8_recipe"] == "rowwise"
    if rowwise:
        return replace(stack, products="fp8", casts_rows=True)
    # With one factor a tensor, parameters (enable_fsdp_float8_all_gather) and the inputs of tensor regions
    # (Float8ColwiseParallel) are gathered in fp8: torchtitan, docs/float8.md.
    return replace(stack, products="fp8", gathered=1, entry=1)


def _titan_name(row: dict[str, str]) -> str:
    axes = " ".join(f"{key}{row[key]}" for key in ("fsdp", "tp", "pp", "cp") if row[key] != "1")
    marks = [name for name, key in (("compile", "compile"), ("async tp", "async_tp")) if row[key] == "1"]
    marks += [f"float8 {row['float8_recipe']}".strip()] if row["float8"] == "1" else []
    return ", ".join([f"{row['model']}, {axes}, {row['seq']} positions", *marks])


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as stream:
        return list(csv.DictReader(stream))
