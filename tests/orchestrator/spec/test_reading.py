"""Text to JobSpec: YAML as people mean it, JSON, and everything that is neither."""

from __future__ import annotations

import json

import pytest

from orchestrator.spec import InvalidSpecError, JobSpec, parse_spec, read_spec

MINIMAL = "name: demo\ntraining: {steps: 10}\n"


def refused(text: str) -> str:
    with pytest.raises(InvalidSpecError) as error:
        read_spec(text, origin="job.yaml")
    assert len(error.value.violations) == 1
    assert error.value.violations[0].field == ""
    return error.value.violations[0].message


def test_only_name_and_steps_are_required() -> None:
    assert read_spec(MINIMAL, origin="job.yaml") == JobSpec.model_validate(
        {"name": "demo", "training": {"steps": 10}}
    )


def test_yaml_and_json_are_one() -> None:
    document = {"name": "demo", "training": {"steps": 10, "optimizer": {"betas": [0.9, 0.99]}}}
    text = "name: demo\ntraining:\n  steps: 10\n  optimizer:\n    betas: [0.9, 0.99]\n"
    assert read_spec(text, origin="a") == read_spec(json.dumps(document), origin="b") == parse_spec(document)


def test_a_spec_survives_being_stored() -> None:
    spec = read_spec("name: demo\ntraining: {steps: 10, clip_norm: null}\n", origin="a")
    assert parse_spec(spec.model_dump(mode="json")) == spec
    assert spec.training.clip_norm is None


def test_only_what_was_set_counts_as_set() -> None:
    spec = read_spec(MINIMAL, origin="a")
    assert spec.model_dump(mode="json", exclude_unset=True) == {"name": "demo", "training": {"steps": 10}}


@pytest.mark.parametrize("text", ["1e-3", "1.0e-3", "0.001", "1E-3", ".001"])
def test_numbers_as_people_write_them(text: str) -> None:
    spec = read_spec(f"name: a\ntraining: {{steps: 1, optimizer: {{learning_rate: {text}}}}}", origin="a")
    assert spec.training.optimizer.learning_rate == pytest.approx(0.001)


@pytest.mark.parametrize("name", ["no", "on", "y", "2024-01-01", "null-1"])
def test_words_that_older_yaml_turns_into_something_else_stay_words(name: str) -> None:
    assert read_spec(f"name: {name}\ntraining: {{steps: 1}}", origin="a").name == name


def test_a_byte_order_mark_is_no_content() -> None:
    assert read_spec("\ufeff" + MINIMAL, origin="a").name == "demo"
    assert read_spec('\ufeff{"name": "demo", "training": {"steps": 1}}', origin="a").name == "demo"


def test_aliases_are_followed() -> None:
    text = "name: a\ntraining: {steps: 1}\nplacement:\n  tp: &rule {tier: any}\n  pp: *rule\n"
    assert read_spec(text, origin="a").placement.pp.tier == "any"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("name: [a\n", "job.yaml: line 2, column 1: not valid YAML: expected ',' or ']', but got '<stream end>'"),
        ("a: b: c", "job.yaml: line 1, column 5: not valid YAML: mapping values are not allowed here"),
        ('{"a" 1}', "job.yaml: line 1, column 6: not valid JSON: Expecting ':' delimiter"),
        ("a: 1\nb: 2\na: 3\n", "job.yaml: line 3, column 1: not valid YAML: the key 'a' occurs twice in one mapping; keep one"),  # noqa: E501
        ('{"a": NaN}', "job.yaml: NaN is no number; JSON has finite ones only"),
        ('{"a": 1, "a": 2}', "job.yaml: the key 'a' occurs twice in one mapping; keep one"),
        ("a: 1\n---\nb: 2\n", "job.yaml: line 2, column 1: a second document begins here; one file holds one"),
        ("a: !!python/name:os.system x", "job.yaml: line 1, column 4: not valid YAML: tags such as tag:yaml.org,2002:python/name:os.system are not used here"),  # noqa: E501
        ("? [a]\n: b\n", "job.yaml: line 1, column 3: not valid YAML: a key must be plain text"),
        ("a: *b", "job.yaml: line 1, column 4: not valid YAML: found undefined alias 'b'"),
        ("a: &a [*a]", "job.yaml: line 1, column 4: not valid YAML: found unconstructable recursive node"),
        ("a: \x07", "job.yaml: character 4: U+0007 is not allowed in YAML"),
        ("[" * 20_000, "job.yaml: nested too deeply"),
        ("[" * 65 + "]" * 65, "job.yaml: nested too deeply"),
        ("[" + "a," * 20_000 + "]", "job.yaml: holds more than 32768 YAML tokens"),
        ('{"a":' * 20_000, "job.yaml: nested too deeply"),
        ("a: " + "9" * 5_000, "job.yaml: holds an integer of thousands of digits"),
        ('{"a": ' + "9" * 5_000 + "}", "job.yaml: holds an integer of thousands of digits"),
        ("x" * 300_000, "job.yaml: 300000 characters are too many, at most 262144"),
        ("", "a job file is a mapping with at least name and training.steps, not null"),
        ("- a\n", "a job file is a mapping with at least name and training.steps, not a list"),
    ],
)  # fmt: skip
def test_unreadable(text: str, sentence: str) -> None:
    assert refused(text) == sentence


def test_an_alias_bomb_is_counted_not_expanded() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 12)]
    assert (
        refused("\n".join(lines))
        == "holds more than 5000 values (aliases counted each time); no job file does"
    )


def test_deep_nesting_below_a_known_key() -> None:
    with pytest.raises(InvalidSpecError, match="nested deeper than 16 levels"):
        read_spec("name: a\ntraining: {steps: 1}\nmodel: " + "[" * 40 + "]" * 40, origin="a")
