"""A8, the spec half: wrong job files, each with the field and the sentence a user is told."""

from __future__ import annotations

import math
from typing import Any

import pytest

from orchestrator.spec import InvalidSpecError, parse_spec


def job(**changes: Any) -> dict[str, Any]:
    """A valid job with dotted fields set: `job(parallelism__tp=2)`; `...` removes a field."""
    document: dict[str, Any] = {"name": "demo", "training": {"steps": 10}}
    for path, value in changes.items():
        *parents, key = path.split("__")
        section = document
        for parent in parents:
            section = section.setdefault(parent, {})
        if value is ...:
            section.pop(key, None)
        else:
            section[key] = value
    return document


def violations(document: Any) -> dict[str, str]:
    with pytest.raises(InvalidSpecError) as refused:
        parse_spec(document)
    found = {violation.field: violation.message for violation in refused.value.violations}
    assert len(found) == len(refused.value.violations), "one sentence a field"
    return found


WRONG: list[tuple[str, Any, str, str]] = [
    # the document as a whole
    ("a list", [1], "", "a job file is a mapping with at least name and training.steps, not a list"),
    ("nothing", None, "", "a job file is a mapping with at least name and training.steps, not null"),
    ("a text", "train!", "", 'a job file is a mapping with at least name and training.steps, not the text "train!"'),
    # required
    ("no name", job(name=...), "name", "is required"),
    ("no training", job(training=...), "training", "is required, with training.steps at least"),
    ("no steps", job(training__steps=...), "training.steps", "is required"),
    # unknown keys
    ("misspelt section", job(modle={}), "modle", "is not a known key; did you mean model?"),
    ("misspelt key", job(training__step=3), "training.step", "is not a known key; did you mean training.steps?"),
    ("hyphen", job(**{"training__global-batch": 16}),
     "training.global-batch", "is not a known key; did you mean training.global_batch?"),
    ("key of another section", job(steps=3), "steps", "is not a known key here; did you mean training.steps?"),
    ("unheard-of key", job(checkpoint__colour=3), "checkpoint.colour",
     "is not a known key; checkpoint knows every, keep, keep_best, asynchronous, directory, memory"),
    ("in a nested section", job(placement__tp={"tier": "leaf", "mood": "required"}), "placement.tp.mood",
     "is not a known key; did you mean placement.tp.mode?"),
    # types
    ("number as text", job(training__steps="10"), "training.steps",
     'must be a whole number, not the text "10"; write it without quotes'),
    ("float as text", job(training__optimizer={"learning_rate": "1e-3"}), "training.optimizer.learning_rate",
     'must be a number, not the text "1e-3"; write it without quotes, with a point: 1.0e-3'),
    ("bool as int", job(training__seed=True), "training.seed", "must be a whole number, not true"),
    ("bool as float", job(training__clip_norm=False), "training.clip_norm", "must be a number, not false"),
    ("float as int", job(parallelism__tp=2.0), "parallelism.tp", "must be a whole number, not 2.0"),
    ("int as bool", job(parallelism__sequence=1), "parallelism.sequence", "must be true or false, not 1"),
    ("number as name", job(name=7), "name", "must be text, not 7"),
    ("null section", job(model=None), "model", "must be a mapping of keys to values, not null"),
    ("list as section", job(data=[1]), "data", "must be a mapping of keys to values, not a list"),
    ("NaN", job(model__norm_eps=math.nan), "model.norm_eps", "must be a finite number, not nan"),
    ("infinity", job(training__clip_norm=math.inf), "training.clip_norm", "must be a finite number, not inf"),
    ("bytes", job(name=b"x"), "name", "must be a value that JSON has, not a bytes"),
    ("number key", {**job(), 3: 4}, "", "has the key 3; keys are plain text"),
    ("control character", job(data__source="/a\x00b"), "data.source",
     "must be text without control characters or broken Unicode"),
    ("lone surrogate", job(data__source="/a\ud800"), "data.source",
     "must be text without control characters or broken Unicode"),
    ("endless number", job(training__steps=10**5000), "training.steps", "is too large a number"),
    ("endless text", job(name="x" * 10_000), "name", "is longer than 4096 characters"),
    # ranges
    ("zero layers", job(model__layers=0), "model.layers", "must be at least 1, not 0"),
    ("too many steps", job(training__steps=10**9), "training.steps", "must be at most 100000000, not 1000000000"),
    ("zero rate", job(training__optimizer={"learning_rate": 0}), "training.optimizer.learning_rate",
     "must be more than 0.0, not 0"),
    ("holdout of half", job(data__holdout_fraction=0.5), "data.holdout_fraction", "must be less than 0.5, not 0.5"),
    ("negative warm-up", job(training__optimizer={"warmup_steps": -1}), "training.optimizer.warmup_steps",
     "must be at least 0, not -1"),
    ("keep none", job(checkpoint__keep=0), "checkpoint.keep", "must be at least 1, not 0"),
    ("one beta", job(training__optimizer={"betas": [0.9]}), "training.optimizer.betas",
     "has too few values: number 2 is missing"),
    ("three betas", job(training__optimizer={"betas": [0.9, 0.9, 0.9]}), "training.optimizer.betas",
     "must be a list of 2, not more"),
    ("beta of one", job(training__optimizer={"betas": [0.9, 1]}), "training.optimizer.betas.1",
     "must be less than 1.0, not 1"),
    ("empty name", job(name=""), "name", "must not be empty"),
    ("capital name", job(name="Demo"), "name",
     "must be lower-case letters, digits and hyphens, beginning and ending with a letter or digit"),
    ("long name", job(name="x" * 64), "name", "must have at most 63 characters, not 64"),
    ("newline after name", job(name="demo\n"), "name",
     "must be lower-case letters, digits and hyphens, beginning and ending with a letter or digit"),
    # choices
    ("unknown schedule", job(parallelism__schedule="1f1v"), "parallelism.schedule",
     'must be one of gpipe, 1f1b, interleaved-1f1b, zero-bubble, zbv, not the text "1f1v"; did you mean 1f1b?'),
    ("unknown precision", job(training__precision="bf-16"), "training.precision",
     'must be one of fp64, fp32, bf16, fp16, fp8, not the text "bf-16"; did you mean bf16?'),
    ("unknown tier", job(placement__pp={"tier": "leef"}), "placement.pp.tier",
     'must be one of island, node, leaf, spine, core, any, not the text "leef"; did you mean leaf?'),
    ("rule without tier", job(placement__pp={"mode": "preferred"}), "placement.pp.tier", "is required"),
    ("unknown optimizer", job(training__optimizer={"name": "adam"}), "training.optimizer.name",
     'must be one of adamw, sgd, muon, not the text "adam"; did you mean adamw?'),
    # rules between fields
    ("heads % kv_heads", job(model__heads=4, model__kv_heads=3), "model.kv_heads",
     "must divide model.heads: 4 heads cannot share 3 key-value heads evenly"),
    ("hidden % heads", job(model__hidden=130), "model.hidden",
     "must be a multiple of model.heads (4), not 130; or give model.head_size"),
    ("odd head", job(model__hidden=132), "model.hidden",
     "gives heads of size 33 (hidden 132 / heads 4); rotary positions need an even size"),
    ("kv_heads % tp", job(parallelism__tp=4), "parallelism.tp", "must divide model.kv_heads (2), 4 does not"),
    ("ffn % tp", job(parallelism__tp=2, model__ffn_hidden=385), "parallelism.tp",
     "must divide model.ffn_hidden (385), 2 does not"),
    ("sequence % tp", job(parallelism__tp=2, training__sequence_length=127), "parallelism.tp",
     "must divide training.sequence_length (127), 2 does not"),
    ("a rank without vocabulary", job(model={"heads": 200, "kv_heads": 200, "hidden": 400, "ffn_hidden": 400},
                                      parallelism={"tp": 200, "sequence": False},
                                      data={"tokenizer": "bpe", "vocab_size": 301}), "parallelism.tp",
     "leaves some rank no part of data.vocab_size (301), cut into parts of 2; must be another degree, such as 151, "
     "not 200"),
    ("layers < pp", job(parallelism={"pp": 5, "microbatches": 8}), "parallelism.pp",
     "5 stages need at least as many layers, model.layers is 4"),
    ("1f1b with few micro-batches", job(parallelism={"pp": 4, "microbatches": 2}), "parallelism.microbatches",
     "1f1b with 4 pipeline ranks needs at least 4 micro-batches, not 2"),
    ("batch % (dp x micro-batches)", job(parallelism={"dp": 3, "microbatches": 2}), "training.global_batch",
     "must be a multiple of parallelism.dp x parallelism.microbatches (3 x 2 = 6), not 16"),
    ("too many ranks", job(parallelism={"dp": 131_072, "microbatches": 2, "schedule": "gpipe", "pp": 2},
                           training__global_batch=262_144), "parallelism",
     "tp x pp x dp x cp = 262144 ranks; a job has at most 131072"),
    ("warm-up > steps", job(training__optimizer={"warmup_steps": 11}), "training.optimizer.warmup_steps",
     "must be at most training.steps (10), not 11"),
    ("least rate > rate", job(training__optimizer={"min_learning_rate": 0.1}), "training.optimizer.min_learning_rate",
     "must be at most training.optimizer.learning_rate (0.003), not 0.1"),
    ("bytes with another vocabulary", job(data__vocab_size=512), "data.vocab_size",
     "must be 256 with the tokenizer bytes, not 512; other sizes need the tokenizer bpe"),
    ("relative source", job(data__source="text.txt"), "data.source",
     "must be pydoc or the absolute path of a text file that every node sees, not text.txt"),
    ("relative directory", job(checkpoint__directory="out"), "checkpoint.directory",
     "must be an absolute path on storage that every node sees, not out"),
    ("directory with ..", job(checkpoint__directory="/out/../etc"), "checkpoint.directory",
     "must name a directory below the root, without `..`, not /out/../etc"),
    ("accelerator no label", job(resources__accelerator="H100 SXM"), "resources.accelerator",
     "must be a label value: letters, digits, `-`, `_` and `.`, beginning and ending with a letter or digit"),
]  # fmt: skip


@pytest.mark.parametrize(("document", "field", "sentence"), [w[1:] for w in WRONG], ids=[w[0] for w in WRONG])
def test_wrong(document: Any, field: str, sentence: str) -> None:
    assert violations(document)[field] == sentence


@pytest.mark.parametrize(("document", "field"), [(w[1], w[2]) for w in WRONG], ids=[w[0] for w in WRONG])
def test_wrong_in_one_place_gives_no_other_complaint(document: Any, field: str) -> None:
    """A key misspelt is a key missing too: those two belong together, and so do name and training of no document."""
    assert set(violations(document)) <= {field, "training.steps"}


def test_more_than_forty() -> None:
    assert len(WRONG) >= 40


def test_everything_at_once() -> None:
    """Values, fields and rules, in one answer, in the order of a job file."""
    found = violations(
        job(
            name="Demo",
            model={"layers": 2, "hidden": 130, "heads": "4"},
            parallelism={"tp": 3, "cp": 0, "zero": 4, "schedule": "zbw", "sequence": "yes"},
            training={"steps": 10, "optimizer": {"learning_rate": math.nan, "lr": 1}},
            data={"vocab_size": 300, "tokeniser": "bytes"},
            checkpoint={"directory": "here"},
        )
    )
    assert list(found) == [
        "name",
        "model.heads",
        "parallelism.cp",
        "parallelism.schedule",
        "parallelism.sequence",
        "parallelism.zero",
        "training.optimizer.learning_rate",
        "training.optimizer.lr",
        "data.tokeniser",
        "data.vocab_size",
        "checkpoint.directory",
    ]


def test_rules_run_on_valid_sections_when_others_are_broken() -> None:
    found = violations(job(model="none", training__optimizer={"warmup_steps": 99}, recovery__max_restarts=-1))
    assert "training.optimizer.warmup_steps" in found
    assert "model" in found
    assert "recovery.max_restarts" in found


def test_a_misspelt_key_does_not_hide_the_rules_of_its_section() -> None:
    found = violations(job(parallelism={"pp": 9, "microbatches": 16, "tpp": 2}))
    assert found["parallelism.pp"] == "9 stages need at least as many layers, model.layers is 4"
    assert "parallelism.tpp" in found


def test_the_value_found_is_given_when_it_is_a_plain_one() -> None:
    with pytest.raises(InvalidSpecError) as refused:
        parse_spec(job(training__seed="x" * 500, model=[1]))
    values = {violation.field: violation.value for violation in refused.value.violations}
    assert values["training.seed"] == "x" * 120 + "…"
    assert values["model"] is None
