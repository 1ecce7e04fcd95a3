"""A user's own module under plans: the same losses, norms and weights as in one process (float64, 1e-9 relative).

The model (`programs/own_model.py`) is none of ours: attention with a gain that all heads share, so that with tp its
gradient comes in parts, learned positions, biases on every linear map.
"""

from __future__ import annotations

import math
import tempfile
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from plans import assemble, changed, demo_job, run_engine, shards, train_job
from test_equality import Run, assert_equal

from actors.training.local_gang import RankFailedError
from actors.training.model.imported import ImportedModel
from orchestrator.spec import JobSpec, parse_spec
from orchestrator.spec.sections import ModelSpec

PROGRAMS = Path(__file__).parents[1] / "programs"
STEPS = 6
OWN = {"import": "own_model:build", "import_path": str(PROGRAMS)}
BLOCKS = {"blocks": "trunk.layers"}
STAGES = BLOCKS | {"embed": ["embed"], "head": ["norm", "head"]}
SPLIT = {
    f"trunk.layers.*.{name}": split
    for split, names in {"colwise": ("query", "key", "value", "up"), "rowwise": ("out", "down")}.items()
    for name in names
}


def own_job(model: dict[str, Any], *, precision: str = "fp64", **plan: Any) -> JobSpec:
    spec = demo_job(
        # In fp64: units of two blocks.
        parallelism={"sequence": False, "bucket_mb": 0.05} | plan,
        precision=precision,
        steps=STEPS,
        global_batch=8,
        sequence_length=32,
        eval_sequences=20,
    )
    plain = JobSpec.model_validate({"name": "own", "training": {"steps": 1}}).model_dump(mode="json")["model"]
    return parse_spec(changed(spec, model=plain | OWN | model).model_dump(mode="json"))


def run(spec: JobSpec, *, steps: int = STEPS) -> Run:
    def body(engine: Any, rank: int) -> Any:
        results = [engine.train_step(step, stop=False) for step in range(steps)]
        return (
            [r.loss for r in results],
            [r.grad_norm for r in results],
            shards(engine),
            engine.evaluate().loss,
        )

    ranks = run_engine(spec, body)
    for losses, norms, _, held_back in ranks:
        assert (losses, norms, held_back) == (ranks[0][0], ranks[0][1], ranks[0][3])
    return Run(ranks[0][0], ranks[0][1], assemble([r[2] for r in ranks]), ranks[0][3])


@cache
def alone() -> Run:
    return run(own_job({}, microbatches=4))


PLANS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "ddp": ({}, {"dp": 2}),
    "zero1": ({}, {"dp": 2, "zero": 1, "microbatches": 2}),
    "zero2": (BLOCKS, {"dp": 2, "zero": 2, "microbatches": 2}),
    "zero3": ({}, {"dp": 2, "zero": 3}),
    "zero3-blocks": (BLOCKS, {"dp": 4, "zero": 3, "dp_shard": 2, "microbatches": 2}),
    "pipeline": (STAGES, {"pp": 2, "microbatches": 4}),
    "zbv-zero1": (
        STAGES,
        {"pp": 2, "dp": 2, "zero": 1, "schedule": "zbv", "virtual_stages": 2, "microbatches": 4},
    ),
    "tensor": ({"tp_plan": SPLIT}, {"tp": 2}),
    "vocabulary": (
        {"tp_plan": SPLIT | {"embed.tokens": "rowwise", "head": "colwise"}},
        {"tp": 2, "microbatches": 2},
    ),
    "pipeline-tensor": (STAGES | {"tp_plan": SPLIT}, {"pp": 2, "tp": 2, "microbatches": 4}),
    "all": (
        STAGES | {"tp_plan": SPLIT | {"embed.tokens": "rowwise", "head": "colwise"}},
        {"dp": 2, "tp": 2, "pp": 2, "zero": 1, "microbatches": 4},
    ),
}


QUICK = ("ddp", "zero3-blocks", "pipeline", "all")
"""The part that every run of the tests has time for."""


@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in PLANS]
)
def test_a_plan_is_one_process(name: str) -> None:
    model, plan = PLANS[name]
    assert_equal(run(own_job(model, **plan)), alone(), relative=1e-9)


@pytest.mark.parametrize("name", ["ddp", pytest.param("zero3", marks=pytest.mark.slow)])
def test_the_order_of_a_parameter_in_memory_changes_nothing(name: str) -> None:
    model, plan = PLANS[name]
    assert_equal(run(own_job(model | {"options": {"transposed": True}}, **plan)), alone(), relative=1e-9)


def test_its_own_initial_values_are_kept() -> None:
    """The first loss of a head that starts at N(0, 1/width/3) is that of a nearly uniform guess."""
    assert alone().losses[0] == pytest.approx(math.log(256), rel=0.1)


@pytest.mark.parametrize(
    ("model", "plan", "training"),
    [
        pytest.param(
            BLOCKS | {"options": {"dropout": 0.3}},
            {},
            {"recompute": {"mode": "full"}},
            id="dropout-recompute",
        ),
        pytest.param(
            BLOCKS,
            {"dp": 2},
            {"offload": {"activations": True, "optimizer": "host"}},
            id="offload",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            {"options": {"tied": True}}, {"dp": 2, "zero": 3}, {}, id="tied-zero3", marks=pytest.mark.slow
        ),
    ],
)
def test_techniques_change_nothing(
    model: dict[str, Any], plan: dict[str, Any], training: dict[str, Any]
) -> None:
    wanted = run(own_job(model, microbatches=4 if not plan else 8), steps=3)
    found = run(changed(own_job(model, microbatches=4, **plan), training=training), steps=3)
    assert found.losses == pytest.approx(wanted.losses, rel=1e-9, abs=0)
    assert found.norms == pytest.approx(wanted.norms, rel=1e-9, abs=0)


@pytest.mark.slow
def test_compiled_blocks_have_the_same_losses() -> None:
    found = run(changed(own_job(BLOCKS, microbatches=4), training={"compile": True}), steps=2)
    assert found.losses == pytest.approx(alone().losses[:2], rel=1e-9, abs=0)


@pytest.mark.slow
def test_bf16_under_a_pipeline_trains() -> None:
    model, plan = PLANS["pipeline-tensor"]
    found = run(own_job(model, precision="bf16", **plan), steps=2)
    assert found.losses == pytest.approx(alone().losses[:2], rel=1e-2)


@pytest.mark.slow
@pytest.mark.parametrize(("first", "second"), [("zero3-blocks", "pipeline-tensor"), ("all", "zero1")])
def test_a_checkpoint_of_one_plan_goes_on_under_another(first: str, second: str, tmp_path: Path) -> None:
    before, after = (own_job(model, **plan) for model, plan in (PLANS[first], PLANS[second]))
    cut = train_job(before, tmp_path, stop_after=3)[0]
    resumed = train_job(after, tmp_path, attempt=2)[0]
    assert [event["step"] for event in resumed.of("resumed")] == [3]
    losses = [record["loss"] for record in cut.steps + resumed.steps]
    assert losses == pytest.approx(alone().losses, rel=1e-9, abs=0)


def test_its_flops_are_counted() -> None:
    """For each token: 6 x the weights of the products, and 12 x layers x width x positions for all of attention."""
    weights = 4 * (4 * 16 * 16 + 2 * 16 * 48) + 16 * 256
    assert built("own_model:build").flops_per_token == 6 * weights + 12 * 4 * 16 * 32


# --- Frozen parameters

FROZEN = {"options": {"frozen": ["embed", "trunk.layers.0", "trunk.layers.2.up"]}}
"""With four stages the first one holds nothing else."""


@cache
def frozen_alone() -> Run:
    return run(own_job(FROZEN, microbatches=4))


def is_frozen(name: str) -> bool:
    return name.startswith(tuple(f"{path}." for path in FROZEN["options"]["frozen"]))


def assert_equal_but_for_frozen(found: Run) -> None:
    """What is frozen is equal to the bit, zeros among it."""
    wanted = frozen_alone()
    assert found.weights.keys() == wanted.weights.keys()
    for name in filter(is_frozen, wanted.weights):
        assert torch.equal(found.weights[name], wanted.weights[name]), name
    found, wanted = (
        replace(one, weights={name: w for name, w in one.weights.items() if not is_frozen(name)})
        for one in (found, wanted)
    )
    assert_equal(found, wanted, relative=1e-9)


@pytest.mark.parametrize(
    "name", [name if name == "all" else pytest.param(name, marks=pytest.mark.slow) for name in PLANS]
)
def test_frozen_parameters_change_nothing_of_a_plan(name: str) -> None:
    model, plan = PLANS[name]
    assert_equal_but_for_frozen(run(own_job(model | FROZEN, **plan)))


@pytest.mark.slow
@pytest.mark.parametrize("schedule", ["gpipe", "1f1b", "zero-bubble"])
def test_a_stage_may_be_frozen_whole(schedule: str) -> None:
    plan = {"pp": 4, "schedule": schedule, "microbatches": 4, "layers_per_stage": [1, 1, 1, 1]}
    offload = {"offload": {"optimizer": "disk", "directory": tempfile.gettempdir()}}
    assert_equal_but_for_frozen(run(changed(own_job(STAGES | FROZEN, **plan), training=offload)))


def test_frozen_parameters_stay_and_have_no_states() -> None:
    first = built("own_model:build", seed=own_job(FROZEN).training.seed, **FROZEN).module
    begun = {name: value for name, value in first.named_parameters() if is_frozen(name)}
    assert len(begun) == 2 + 17 + 2  # tokens and places; a block; a map with its bias
    for name, value in begun.items():
        assert torch.equal(frozen_alone().weights[name], value.double())
    others = [name for name in frozen_alone().weights if not is_frozen(name)]

    def names_with_states(engine: Any, rank: int) -> set[str]:
        engine.train_step(0, stop=False)
        assert all(p.grad is None for name, p in engine.named if is_frozen(name))
        keys = engine.state()["optimizer"].state_dict()
        return {key.removeprefix("state.").rpartition(".")[0] for key in keys}

    assert run_engine(own_job(FROZEN), names_with_states) == [set(others)]


@pytest.mark.slow
def test_a_checkpoint_holds_what_is_frozen(tmp_path: Path) -> None:
    before, after = (own_job(PLANS[name][0] | FROZEN, **PLANS[name][1]) for name in ("zero3-blocks", "all"))
    cut = train_job(before, tmp_path, stop_after=3)[0]
    resumed = train_job(after, tmp_path, attempt=2)[0]
    losses = [record["loss"] for record in cut.steps + resumed.steps]
    assert losses == pytest.approx(frozen_alone().losses, rel=1e-9, abs=0)


def test_gradients_of_what_is_frozen_are_no_flops() -> None:
    """A product has 2 FLOPs a weight forward, 2 for its input's gradient, 2 for its own."""
    whole, head = (
        built("own_model:build", options={"frozen": frozen}).flops_per_token
        for frozen in ([], ["embed", "trunk", "norm"])
    )
    weights = 4 * (4 * 16 * 16 + 2 * 16 * 48)
    # Attention: 4 of 12 parts are forward. The head has no gradient of its input to compute.
    assert head == 2 * weights + 4 * 4 * 16 * 32 + 4 * 16 * 256
    assert whole == 6 * (weights + 16 * 256) + 12 * 4 * 16 * 32


# --- What cannot be trained is refused before the ranks are ready


def built(function: str, *, seed: int = 1, **fields: Any) -> ImportedModel:
    model = ModelSpec.model_validate({"import": function, "import_path": str(PROGRAMS)} | fields)
    tokens = torch.empty(2, 32, dtype=torch.long, device="meta")
    return ImportedModel(model, seed=seed, dtype=torch.float32, tokens=tokens, vocab_size=256)


@pytest.mark.parametrize(
    ("function", "fields", "said"),
    [
        ("no_models_here:build", {}, r"there is no module no_models_here on this rank's node"),
        ("wrong_models:missing", {}, r"wrong_models \(.*wrong_models\.py\) has nothing named missing"),
        ("wrong_models:text", {}, r"has no function, but something else, named text"),
        ("wrong_models:raises", {"options": {"what": "luck"}},
         r"raised RuntimeError: no luck at all \(.*wrong_models.py, line \d+\)"),
        ("wrong_models:leaves", {}, r"raised SystemExit: 3"),
        ("wrong_models:no_module", {}, r"gave a list, must give a torch\.nn\.Module"),
        ("wrong_models:empty", {}, r"it has no parameters"),
        ("wrong_models:wrong_parameters", {},
         r"scale is a single number.*nowhere\.weight is on the meta device"
         r".*batch keeps running statistics"),
        ("own_model:build", {"options": {"frozen": ["embed", "trunk", "norm", "head"]}},
         r"none of its parameters requires a gradient, so there is nothing to train"),
        ("wrong_models:unused", {}, r"take no part in the logits: spare\.weight, spare\.bias"),
        ("wrong_models:peeks", {}, r"on the meta device its forward raised .*wrong_models\.py, line \d+"),
        ("wrong_models:other_vocabulary", {},
         r"gives \[2, 32, 300\] for token ids \[2, 32\], must give \[2, 32, 256\]"),
        ("wrong_models:scaled", STAGES,
         r"not embed, blocks and head called one after the other: operation \d+ is aten\.mul"),
        ("wrong_models:loose", STAGES, r"in no module of embed, blocks and head: start"),
        ("wrong_models:same_block", BLOCKS, r"trunk\.layers holds one block several times"),
        ("own_model:build", {"blocks": "layers", "embed": ["tokens"], "head": ["head"]},
         r"model\.embed\.0: it has no module tokens; model\.blocks: it has no module layers"),
        ("own_model:build", {"blocks": "norm"}, r"a LayerNorm is no list of blocks: norm"),
    ],
    ids=lambda value: value if isinstance(value, str) and ":" in value and "\\" not in value else "",
)  # fmt: skip
def test_a_module_that_cannot_be_trained_is_refused(function: str, fields: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said) as refused:
        built(function, **fields)
    assert "\n" not in str(refused.value)


def test_shared_parameters_are_refused_where_they_would_be_parted() -> None:
    with pytest.raises(ValueError, match=r"trunk\.layers\.1\.up\.weight is trunk\.layers\.0\.up\.weight too"):
        built("wrong_models:tied_blocks", **BLOCKS).refuse_shared(stages=False)
    tied = built("own_model:build", options={"tied": True}, **STAGES)
    tied.refuse_shared(stages=False)
    with pytest.raises(ValueError, match=r"head\.weight is embed\.tokens\.weight too"):
        tied.refuse_shared(stages=True)


def refusal(spec: JobSpec) -> str:
    """The last line of what a rank said that could not build its engine."""
    with pytest.raises(RankFailedError) as failed:
        run(spec, steps=1)
    return next(iter(failed.value.failures.values())).traceback.strip().splitlines()[-1]


@pytest.mark.parametrize(
    ("function", "model", "plan", "said"),
    [
        ("own_model:build", {"tp_plan": {"trunk.layers.*.up": "colwise"}}, {"tp": 2},
         "the module's forward raised RuntimeError"),
        ("own_model:build", {"tp_plan": {"head": "colwise", "up": "colwise", "trunk.layers.0": "rowwise"}}, {"tp": 2},
         "model.tp_plan: up matches no module; trunk.layers.0 is a Block, rowwise is for Linear or Embedding"),
        ("own_model:build", {"tp_plan": {"embed.tokens": "rowwise"}, "options": {"tied": True}}, {"tp": 2},
         "embed.tokens shares its weight with another module"),
        ("wrong_models:skips", {"tp_plan": {"up": "colwise", "down": "rowwise"}}, {"tp": 2},
         "acts on a split region both through a colwise module and past it"),
        ("wrong_models:enters",
         {"tp_plan": {"up": "colwise", "wide": "colwise", "down": "rowwise", "narrow": "rowwise"}}, {"tp": 2},
         "what a rowwise module gives enters a split region past any colwise module"),
        ("own_model:build", STAGES, {"pp": 4, "microbatches": 8, "schedule": "interleaved-1f1b", "virtual_stages": 2},
         "ValueError: parallelism.pp: 8 stages need as many blocks, the imported model has 4"),
        ("own_model:build", STAGES, {"pp": 2, "microbatches": 8, "layers_per_stage": [1, 2]},
         "ValueError: parallelism.layers_per_stage: must add up to the 4 blocks of the imported model, not 3"),
        ("wrong_models:of_the_clock", {}, {"dp": 2}, "ValueError: model.import: ranks built different modules"),
    ],
)  # fmt: skip
def test_a_plan_that_does_not_fit_the_module_is_refused(
    function: str, model: dict[str, Any], plan: dict[str, Any], said: str
) -> None:
    assert said in refusal(own_job(model | {"import": function}, **plan))
