"""What the command line and the API ask."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from orchestrator.estimate.questions import Question, ask, usable
from orchestrator.spec import parse_spec
from orchestrator.spec.sections import Tier
from orchestrator.topology.fabric import Fabric, Node

NODES = tuple(Node(f"n{n}", 8, {Tier.ISLAND: f"i{n}", Tier.LEAF: "l"}, accelerator="H100") for n in range(2))


def job(**sections: Any) -> Any:
    return parse_spec(
        {
            "name": "j",
            "model": {"layers": 16, "hidden": 2048, "heads": 16, "kv_heads": 8, "ffn_hidden": 8192},
            "data": {"tokenizer": "bpe", "vocab_size": 32_000},
            "training": {"steps": 1000, "global_batch": 64, "sequence_length": 2048, "precision": "bf16"},
            "parallelism": {"tp": 2, "pp": 2, "dp": 2, "microbatches": 4},
        }
        | sections
    )


def test_the_cost_of_a_jobs_own_plan() -> None:
    answer = ask(job(), Fabric(NODES), Question())
    found = answer.estimate
    assert found is not None
    assert answer.search is None
    assert json.loads(json.dumps(found)) == found
    assert found["plan"] == "tp2 pp2 dp2"
    assert found["step_s"] == pytest.approx(sum(found["seconds"].values()))
    assert found["memory_total_bytes"] == pytest.approx(sum(found["memory_bytes"].values()))
    assert [(axis["axis"], axis["tier"], axis["link"]) for axis in found["axes"]] == [
        ("tp", "island", "nvlink4"),
        ("pp", "island", "nvlink4"),
        ("dp", "island", "nvlink4"),
    ]
    assert found["budget_tokens"] == 1000 * 64 * 2048
    assert found["budget_s"] == pytest.approx(1000 * found["step_s"])
    assert found["budget_gpu_hours"] == pytest.approx(8 * found["budget_s"] / 3600)
    assert found["checkpoint"] is None
    assert answer.notes[0] == "island: link unknown, taken as nvlink4, usual for H100-SXM"


def test_a_token_budget_and_advice_on_checkpoints() -> None:
    question = Question(tokens=1e9, stall_s=2.0, gpu_hours_between_failures=800.0)
    found = ask(job(), Fabric(NODES), question).estimate
    assert found is not None
    assert found["budget_s"] == pytest.approx(-(-1e9 // (64 * 2048)) * found["step_s"])
    advice = found["checkpoint"]
    assert advice["failures_s"] == 100 * 3600  # 800 GPU-hours over eight
    # Young: sqrt(2 x 2 x 360,000) = 1,200 s; Daly takes the stall off and adds a third of sqrt(C/2M).
    assert advice["seconds"] == pytest.approx(1199, abs=found["step_s"])


@pytest.mark.parametrize(
    ("ranks", "parallelism", "wanted"),
    [(4, {}, 4), (None, {"dp": 2}, 2), (None, {}, 16)],
)
def test_how_many_accelerators_a_search_uses(
    ranks: int | None, parallelism: dict[str, Any], wanted: int
) -> None:
    answer = ask(job(parallelism=parallelism), Fabric(NODES), Question(auto=True, ranks=ranks))
    assert answer.search is not None
    assert answer.search["best"]
    for plan in answer.search["best"]:
        degrees = plan["parallelism"]
        assert degrees["tp"] * degrees["pp"] * degrees["cp"] * degrees["dp"] == wanted


@pytest.mark.parametrize(
    ("asked", "wanted"),
    [({}, 15), ({"accelerator": "A100"}, 8), ({"accelerator": "B200"}, 0), ({"mix_accelerators": True}, 23)],
)
def test_one_job_may_have_the_whole_accelerators_of_one_type(asked: dict[str, Any], wanted: int) -> None:
    """Sixteen H100, one of them cut into parts, and eight A100; a cordoned and a dead node."""
    cut = replace(NODES[1], partitioned=frozenset({3}))
    others = (
        Node("old", 8, accelerator="A100"),
        Node("away", 8, accelerator="A100", schedulable=False),
        Node("dead", 8, accelerator="H100", alive=False),
    )
    assert usable(Fabric((NODES[0], cut, *others)), job(resources=asked).resources) == wanted


def test_a_job_has_no_more_than_the_ranks_it_may_have() -> None:
    large = tuple(Node(f"n{n}", 72, accelerator="GB200") for n in range(2_000))
    assert usable(Fabric(large), job().resources) == 131_072


def test_what_is_left_out_is_said() -> None:
    training = {"steps": 1, "precision": "bf16", "offload": {"optimizer": "host"}}
    notes = ask(job(training=training), Fabric(NODES), Question()).notes
    assert "training.offload is not estimated: memory and step time are those without it" in notes


def test_what_cannot_be_estimated_is_said() -> None:
    unnamed = Fabric((Node("n", 8),))
    assert ask(job(), unnamed, Question()).notes == (
        "no estimate: the fabric has an accelerator that orchestrator/estimate/hardware.yaml does not name",
    )
    imported = parse_spec({"name": "j", "model": {"import": "m:f"}, "training": {"steps": 1}})
    assert ask(imported, Fabric(NODES), Question(auto=True)).notes == (
        "no estimate: only the ranks know what an imported model computes",
    )
