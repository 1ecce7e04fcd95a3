"""The plans that equality is shown for, written as words, and which pairs of choices they cover.

A plan is a line such as `1f1b tp2 ring ep2 zero2 offload-host`: every word is a choice on one axis, and the axes
without a word stand at their first choice. Every degree is 2, so that no plan needs more than eight ranks.
"""

from __future__ import annotations

from itertools import combinations
from typing import Any

from plans import changed, demo_job

from orchestrator.spec import JobSpec

AXES: dict[str, tuple[str, ...]] = {
    "tensor": ("tp1", "tp2", "tp2-plain"),
    "context": ("cp1", "all-gather", "ring", "ulysses"),
    "schedule": ("pp1", "gpipe", "1f1b", "interleaved-1f1b", "zero-bubble", "zbv"),
    "experts": ("dense", "ep1", "ep2"),
    "replicate": ("replicate1", "replicate2"),
    "shard": ("shard1", "shard2"),
    "zero": ("zero0", "zero1", "zero2", "zero3"),
    "recompute": ("keep", "selective", "elementwise", "full"),
    "offload": ("on-device", "offload-host", "offload-disk", "offload-activations"),
    "accumulation": ("accumulate1", "accumulate4"),
}
"""`tp2-plain` is tensor parallelism without sequence parallelism. A pipeline always has four micro-batches."""

PAIRWISE = """
1f1b all-gather zero1 selective offload-activations
tp2-plain replicate2 shard2 zero3 offload-host
interleaved-1f1b tp2 ep2 shard2 zero2 full
ring ep1 replicate2 offload-disk accumulate4
gpipe ulysses ep2 replicate2 zero3 full offload-host
tp2 ulysses ep1 shard2 zero2 selective offload-disk
zbv tp2-plain all-gather
all-gather ep2 replicate2 shard2 zero1 full offload-activations
gpipe tp2-plain ring zero2 full offload-activations
zero-bubble tp2-plain ulysses zero1 offload-host
gpipe ep1 replicate2 shard2 zero1 selective
interleaved-1f1b ring ep1 replicate2 zero3 selective offload-host
1f1b tp2 ep2 replicate2 full offload-disk
zero-bubble all-gather ep1 replicate2 zero2 offload-disk
zbv ep2 shard2 zero3 offload-activations
interleaved-1f1b tp2-plain ulysses selective offload-activations
zero-bubble ring ep2 shard2 zero3
zbv tp2-plain ring zero1 offload-disk
1f1b ulysses ep1 shard2 zero3 full
ring ep2 selective
1f1b tp2 ring ep2 zero2 offload-host
interleaved-1f1b tp2 all-gather ep1 zero3 offload-disk
gpipe tp2 all-gather ep2 offload-host
zbv ulysses replicate2 zero2 offload-host
zero-bubble tp2 ep1 replicate2 offload-activations
1f1b tp2-plain ring full offload-disk
gpipe shard2 zero1 full offload-disk
interleaved-1f1b tp2 ulysses ep1 zero1 selective offload-disk
zbv tp2 all-gather ep1 zero1 offload-activations
tp2 replicate2 shard2 zero3 elementwise offload-host accumulate4
1f1b ring ep2 replicate2 elementwise offload-disk
shard2 zero2 elementwise
interleaved-1f1b tp2-plain all-gather zero1 elementwise offload-host
gpipe ulysses ep1 replicate2 elementwise offload-host
"""
"""Chosen greedily out of random plans, the one with most pairs not covered yet first."""

NAMED = """
1f1b tp2 replicate2
1f1b ep2 replicate2
tp2 all-gather replicate2
tp2 ring replicate2
tp2 ulysses replicate2
1f1b tp2 ep2 replicate2
1f1b tp2 ep2
zbv tp2 shard2 zero1
interleaved-1f1b ring shard2 zero2
1f1b tp2 ulysses
tp2 replicate2 shard2 zero3 accumulate4
ep2 replicate2 shard2 zero3
tp2 ring ep2
replicate2
replicate2 accumulate4
shard2 zero1 accumulate4
shard2 zero2 accumulate4
shard2 zero3 accumulate4
tp2
tp2-plain
all-gather
ring
ulysses
gpipe
1f1b
interleaved-1f1b
zero-bubble
zbv
ep1 replicate2
ep2 replicate2
accumulate4
full
selective
elementwise
offload-host
offload-disk
offload-activations
"""
"""Each technique alone, and the compositions people ask for."""

QUICK = (
    "1f1b tp2 ep2",
    "tp2 ring replicate2",
    "shard2 zero3 accumulate4",
    "zbv",
)
"""The part that every run of the tests has time for."""

PLANS = tuple(dict.fromkeys(line for table in (PAIRWISE, NAMED) for line in table.strip().splitlines()))

MODEL = {"layers": 4, "hidden": 32, "heads": 4, "kv_heads": 4, "ffn_hidden": 64}
BUCKET_MB = 0.2
"""Two or three dense layers in fp64: units of several blocks, and several units."""
EXPERTS = {"experts": 4, "top_k": 2, "ffn_hidden": 32, "shared_experts": 1, "dense_layers": 1}


def choices(line: str) -> dict[str, str]:
    """The choice of a plan on every axis."""
    words = line.split()
    found = {axis: next((word for word in words if word in of), of[0]) for axis, of in AXES.items()}
    assert sum(found[axis] != of[0] for axis, of in AXES.items()) == len(words), (
        f"{line}: a word is on no axis"
    )
    if found["schedule"] != "pp1":
        found["accumulation"] = "accumulate4"
    return found


def job(line: str, *, precision: str, directory: str, steps: int = 10) -> JobSpec:
    """A job of the plan; `directory` is for states on disk."""
    found = choices(line)
    pipeline, context = found["schedule"], found["context"]
    zero = int(found["zero"][-1])
    plan: dict[str, Any] = {
        "tp": 1 if found["tensor"] == "tp1" else 2,
        "sequence": found["tensor"] != "tp2-plain",
        "cp": 1 if context == "cp1" else 2,
        "pp": 1 if pipeline == "pp1" else 2,
        "dp": (2 if found["replicate"] == "replicate2" else 1) * (2 if found["shard"] == "shard2" else 1),
        "ep": 2 if found["experts"] == "ep2" else 1,
        "zero": zero,
        "dp_shard": (2 if found["shard"] == "shard2" else 1) if zero else None,
        "microbatches": 4 if found["accumulation"] == "accumulate4" else 1,
        "schedule": "1f1b" if pipeline == "pp1" else pipeline,
        "virtual_stages": 2 if pipeline in ("interleaved-1f1b", "zbv") else 1,
        "bucket_mb": BUCKET_MB,
    }
    if context != "cp1":
        plan["context"] = context
    offload = {
        "optimizer": {"offload-host": "host", "offload-disk": "disk"}.get(found["offload"], "none"),
        "activations": found["offload"] == "offload-activations",
        "directory": directory if found["offload"] == "offload-disk" else None,
    }
    recompute = {"mode": {"keep": "none"}.get(found["recompute"], found["recompute"])}
    spec = demo_job(
        parallelism=plan,
        precision=precision,
        steps=steps,
        global_batch=16,
        sequence_length=32,
        eval_sequences=16,
        recompute=recompute,
        offload=offload,
    )
    return changed(spec, model=MODEL | {"moe": None if found["experts"] == "dense" else EXPERTS})


Pair = tuple[str, str]


def pairs(line: str) -> set[Pair]:
    """Every two choices that the plan makes together."""
    return set(combinations(choices(line).values(), 2))


def all_pairs() -> set[Pair]:
    return {
        (first, second)
        for (_, firsts), (_, seconds) in combinations(AXES.items(), 2)
        for first in firsts
        for second in seconds
    }


IMPOSSIBLE: frozenset[Pair] = frozenset(
    {
        ("tp2-plain", "ep1"),  # every tensor rank routes its own positions
        ("tp2-plain", "ep2"),
        ("shard2", "zero0"),  # nothing is sharded without ZeRO
        ("zero-bubble", "selective"),  # a backward in two halves would compute everything twice
        ("zero-bubble", "elementwise"),
        ("zero-bubble", "full"),
        ("zbv", "selective"),
        ("zbv", "elementwise"),
        ("zbv", "full"),
        ("elementwise", "offload-activations"),
        *(
            (schedule, "accumulate1") for schedule in AXES["schedule"][1:]
        ),  # a pipeline of one micro-batch is none
    }
)
