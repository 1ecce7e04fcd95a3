"""The policy file: what is read, and that everything wrong is told at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.queue.policy import InvalidPolicyError, QueuePolicy, policy_from_yaml, read_policy_file


def test_what_is_left_out_is_the_default() -> None:
    policy = policy_from_yaml("projects:\n  vision: {weight: 2, quota: 64}\nreservations: 4\n", origin="p")
    assert (policy.project("vision").weight, policy.project("vision").quota) == (2.0, 64)
    assert (policy.project("other").weight, policy.project("other").quota) == (1.0, None)
    assert (policy.reservations, policy.preemption, policy.starvation_s) == (4, True, 86_400.0)
    assert policy_from_yaml("{}", origin="p") == QueuePolicy()


def test_everything_wrong_is_told_at_once() -> None:
    text = "starvation_s: 0\nquota: 3\nprojects:\n  Vision: {}\n  a: {weight: much, quota: -1}\n"
    with pytest.raises(InvalidPolicyError) as error:
        policy_from_yaml(text, origin="p.yaml")
    fields = [problem.split(":")[0] for problem in error.value.problems]
    assert (
        sorted(fields)[:3] == ["projects.Vision", "projects.a.quota", "projects.a.weight"] or len(fields) == 5
    )
    assert str(error.value).startswith("p.yaml: ")
    assert len(fields) == 5


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[1]", "a queue policy is a mapping with any of the keys starvation_s, half_life_s"),
        ("a: 1\na: 2", "twice"),
        ("projects: {a: {weight: .nan}}", "projects.a.weight"),
    ],
)
def test_what_is_no_policy(text: str, told: str) -> None:
    with pytest.raises(InvalidPolicyError, match=told):
        policy_from_yaml(text, origin="p")


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(InvalidPolicyError, match="cannot be read: No such file"):
        read_policy_file(tmp_path / "none")
    (tmp_path / "bytes").write_bytes(b"\xff")
    with pytest.raises(InvalidPolicyError, match="is no UTF-8 text"):
        read_policy_file(tmp_path / "bytes")
