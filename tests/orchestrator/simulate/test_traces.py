"""Traces: what is read, and what is refused with which words."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from orchestrator.queue.policy import InvalidPolicyError, read_policy_file
from orchestrator.simulate.faults import NodeChange, nodes_of, read_faults
from orchestrator.simulate.philly import InvalidTraceError, mesh_for, read_philly
from orchestrator.simulate.scenario import Scenario, largest_island, read_text, run
from orchestrator.topology.sources.reading import InvalidFabricError
from tests.orchestrator.queue.small_cluster import fabric

HEADER = "timestamp,duration,num_gpus,gpu_time,cluster\n"


def philly(text: str, **options: object) -> list[tuple[str, int, float, float, str]]:
    given = {"island": 8, "limit_factor": None, "faster": 1.0, "seed": 0, **options}
    jobs = read_philly(text, origin="t.csv", **given)  # type: ignore[arg-type]
    first_s = jobs[0].submitted_s
    return [(j.claim.job_id, j.claim.size, j.submitted_s - first_s, j.work_s, j.claim.project) for j in jobs]


def test_jobs_come_in_the_order_of_time() -> None:
    text = HEADER + "2017-10-09 07:01:55,66.0,1,66.0,11cb48\n2017-10-09 06:01:55,10.0,16,160.0,b\n"
    assert philly(text) == [("000003", 16, 0.0, 10.0, "b"), ("000002", 1, 3600.0, 66.0, "11cb48")]
    assert philly(text, faster=4.0)[1][2] == 900.0


def test_every_wrong_line_is_named() -> None:
    text = HEADER + "yesterday,66.0,1,66.0,a\n2017-10-09 07:01:55,0,1,0,a\n2017-10-09 07:01:55,5\n"
    with pytest.raises(InvalidTraceError, match=r"t\.csv: line 2: .*; line 3: .*more than 0.*; line 4: "):
        philly(text)
    with pytest.raises(InvalidTraceError, match="it holds no job"):
        philly(HEADER)


@pytest.mark.parametrize(
    ("size", "island", "degrees"),
    [
        (1, 8, (1, 1, 1, 1)),
        (8, 8, (8, 1, 1, 1)),
        (12, 8, (4, 1, 3, 1)),
        (16, 8, (8, 1, 2, 1)),
        (128, 8, (8, 1, 4, 4)),
        (8, 4, (4, 1, 2, 1)),
        (72, 72, (8, 1, 3, 3)),
    ],
)
def test_the_plan_that_is_assumed(size: int, island: int, degrees: tuple[int, ...]) -> None:
    assert mesh_for(size, island).degrees == degrees


def test_time_limits_follow_the_seed() -> None:
    text = HEADER + "2017-10-09 07:01:55,100,1,100,a\n" * 20

    def limits(seed: int) -> list[float | None]:
        jobs = read_philly(text, origin="t", island=8, limit_factor=3.0, faster=1.0, seed=seed)
        return [job.claim.time_limit_s for job in jobs]

    assert limits(1) == limits(1) != limits(2)
    assert all(limit is not None and 100 <= limit <= 300 for limit in limits(1))


def fault(node: str, day: float, kind: str) -> dict[str, object]:
    return {"node_id": node, "event_time": day, "event_type": kind, "fault_type": {}}


def test_a_node_is_down_until_its_last_open_fault_ends() -> None:
    entries = [
        fault("x", 1.0, "fault_start"),
        fault("x", 1.5, "fault_start"),
        fault("x", 2.0, "fault_end"),
        fault("x", 3.0, "fault_end"),
    ]
    (down, up) = read_faults(json.dumps(entries), fabric(1, 1), origin="f", seed=0)
    assert down == NodeChange(86_400.0, "l0n0", alive=False)
    assert up == NodeChange(3 * 86_400.0, "l0n0", alive=True)


def test_nodes_are_dealt_by_the_seed_and_the_rest_is_left_out() -> None:
    text = json.dumps([fault(f"x{i}", float(i), "fault_start") for i in range(9)])
    found = [
        [change.node for change in read_faults(text, fabric(), origin="f", seed=seed)] for seed in (1, 1, 2)
    ]
    assert found[0] == found[1] != found[2]
    assert sorted(found[0]) == ["l0n0", "l0n1", "l1n0", "l1n1"]


@pytest.mark.parametrize(
    ("line", "flaw"),
    [
        ("2017-10-09 07:01:55,nan,1,5,a", "duration: must be seconds, .*, not 'nan'"),
        ("2017-10-09 07:01:55,inf,1,5,a", "duration: must be seconds, .*, not 'inf'"),
        ("2017-10-09 07:01:55,1e300,1,5,a", "duration: must be seconds, .*, not '1e300'"),
        ("2017-10-09 07:01:55,-5,1,5,a", "duration: must be seconds, .*, not '-5'"),
        ("2017-10-09 07:01:55,5,1.0,5,a", "num_gpus: must be a whole number from 1 to 100000, not '1.0'"),
        ("yesterday,5,1,5,a", "timestamp: must be a time like 2017-10-09 07:01:55, not 'yesterday'"),
        ("2017-10-09 07:01:55,5", "2 fields, expected 5"),
        ("2017-10-09 07:01:55,5,1,5,a,b", "6 fields, expected 5"),
        ("2017-10-09 07:01:55,5,1,5," + "a" * 200_000, "field larger than field limit"),
    ],
)
def test_a_wrong_field_is_named_with_what_would_be_right(line: str, flaw: str) -> None:
    text = HEADER + "2017-10-09 07:01:55,5,1,5,a\n\n" + line + "\n"
    with pytest.raises(InvalidTraceError, match=rf"t\.csv: line 4: {flaw}"):
        philly(text)


def test_all_fields_of_a_line_and_the_count_of_the_rest() -> None:
    with pytest.raises(
        InvalidTraceError, match=r"line 2: timestamp: .*; line 2: duration: .*; line 2: num_gpus: "
    ):
        philly(HEADER + "x,y,z,5,a\n")
    with pytest.raises(InvalidTraceError, match=r"line 11: [^;]*; 2 more like these$"):
        philly(HEADER + "x,5,1,5,a\n" * 12)


def test_other_columns_are_refused() -> None:
    with pytest.raises(InvalidTraceError, match=r"t\.csv: line 1: the columns must be timestamp,duration"):
        philly("timestamp,duration,num_gpus,gpu_time,clusters\n2017-10-09 07:01:55,5,1,5,a\n")


def test_as_other_systems_write_it() -> None:
    """A byte order mark, carriage returns, quotes; a zone is believed."""
    text = '\ufeff"timestamp",duration,num_gpus,gpu_time,cluster\r\n2017-10-09 07:00:00,5,1,5,a\r\n'
    text += '"2017-10-09T10:00:00+02:00",6,1,6,b\r\n'
    assert philly(text) == [("000002", 1, 0.0, 5.0, "a"), ("000003", 1, 3600.0, 6.0, "b")]


@pytest.mark.parametrize(
    ("entry", "flaw"),
    [
        ({"node_id": "a", "event_type": "fault_start"}, "entry 1: event_time: is required"),
        (
            {"node_id": "a", "event_time": float("nan"), "event_type": "fault_end"},
            "entry 1: event_time: must be",
        ),
        (
            {"node_id": "a", "event_time": -1, "event_type": "fault_end"},
            "entry 1: event_time: must be at least 0",
        ),
        (
            {"node_id": "a", "event_time": 1e300, "event_type": "fault_end"},
            "entry 1: event_time: must be at most",
        ),
        (7, "entry 1: must be a mapping"),
    ],
)
def test_a_wrong_fault_is_named(entry: object, flaw: str) -> None:
    with pytest.raises(InvalidTraceError, match=f"f is no fault trace: {flaw}"):
        read_faults(json.dumps([entry]), fabric(), origin="f", seed=0)


def test_brackets_without_end(tmp_path: Path) -> None:
    with pytest.raises(InvalidTraceError, match="f is no fault trace: nested too deeply"):
        read_faults("[" * 100_000, fabric(), origin="f", seed=0)
    path = tmp_path / "trace"
    path.write_text('{"a":' * 100_000)
    with pytest.raises(InvalidTraceError, match="is no trace that is known"):
        run(Scenario(path))


def test_a_file_without_end_is_refused() -> None:
    with pytest.raises(InvalidTraceError, match="/dev/zero has more than"):
        read_text(Path("/dev/zero"))
    with pytest.raises(InvalidPolicyError, match=r"/dev/zero: .* characters are too many"):
        read_policy_file(Path("/dev/zero"))


def test_a_fabric_of_any_known_format(tmp_path: Path) -> None:
    """As `atoll plan` takes it: here Slurm's switches and node lines."""
    (tmp_path / "t.csv").write_text(HEADER + "2017-10-09 07:01:55,5,1,5,a\n")
    slurm = tmp_path / "slurm.conf"
    slurm.write_text("NodeName=n[1-4] Gres=gpu:h100:8\nSwitchName=l Nodes=n[1-4]\n")
    report = run(Scenario(tmp_path / "t.csv", fabric=slurm))
    assert (report.accelerators, dict(report.states)) == (32, {"succeeded": 1})
    slurm.write_text("SwitchName=l Nodes=n[1-4]\n")
    with pytest.raises(
        InvalidFabricError, match=r"slurm\.conf: says of no node how many accelerators it has"
    ):
        run(Scenario(tmp_path / "t.csv", fabric=slurm))


@pytest.mark.parametrize("text", ["{}x", '[{"node_id": 1}]', '[{"event_type": "x"}]', "3"])
def test_what_is_no_fault_trace(text: str) -> None:
    with pytest.raises(InvalidTraceError, match="f is no fault trace"):
        read_faults(text, fabric(), origin="f", seed=0)


def test_parts_of_a_fabric() -> None:
    assert nodes_of(fabric(), "leaf=l1") == ["l1n0", "l1n1"]
    assert nodes_of(fabric(), "node=l0n1") == ["l0n1"]
    with pytest.raises(ValueError, match=r"no leaf l7; there are: l0, l1"):
        nodes_of(fabric(), "leaf=l7")
    with pytest.raises(ValueError, match="expected one of island=NAME, node=NAME, leaf=NAME"):
        nodes_of(fabric(), "rack=r1")


def test_the_largest_island() -> None:
    assert largest_island(fabric(1, 2, 4)) == 4


def test_a_trace_nobody_knows(tmp_path: Path) -> None:
    path = tmp_path / "trace"
    path.write_text("a,b\n")
    with pytest.raises(InvalidTraceError, match="is no trace that is known: a Philly trace begins with"):
        run(Scenario(path))


def test_the_philly_trace(shared_data: Path) -> None:
    """Counts of the file itself (`cut -d, -f3 | sort | uniq -c`): 82,247 jobs, three of 128 GPUs."""
    text = (shared_data / "traces" / "philly" / "philly_jobs_82k.csv").read_text()
    jobs = read_philly(text, origin="p", island=8, limit_factor=None, faster=1.0, seed=0)
    sizes = [job.claim.size for job in jobs]
    assert (len(sizes), sizes.count(1), sizes.count(16), sizes.count(128)) == (82_247, 76_627, 199, 3)
    assert len({job.claim.project for job in jobs}) == 15


def test_the_fault_trace(shared_data: Path) -> None:
    """584 faults begin and 584 end, on 231 nodes; some overlap, and 14 nodes have one that ends as it begins."""
    path = shared_data / "traces" / "infinitehbd" / "fault_trace.json"
    changes = read_faults(path.read_text(), fabric(20, 20), origin="f", seed=0)
    assert len({change.node for change in changes}) == 231
    assert len(changes) <= 2 * 584
    assert sum(change.alive for change in changes) * 2 == len(changes)
