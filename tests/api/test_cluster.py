"""The cluster as it was last seen, and what a job would get of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from sqlalchemy import update

from orchestrator.lifecycle.reports import RankFacts
from orchestrator.placement.placement import AxisOutcome, Placement
from orchestrator.spec.sections import Tier
from orchestrator.store import leases, nodes, placements
from orchestrator.store.tables import ClusterNode, Event, Job
from orchestrator.store.tables import Placement as StoredPlacement
from orchestrator.topology.fabric import Fabric, Node, Slot
from tests.api.conftest import job_file

Submit = Callable[..., str]


def _node(name: str, leaf: str, **changes: bool) -> Node:
    domains = {Tier.ISLAND: f"island-{name}", Tier.LEAF: leaf}
    return Node(name, 2, domains, accelerator="cpu", **changes)


FABRIC = Fabric((_node("n0", "l0"), _node("n1", "l0"), _node("n2", "l1"), _node("n3", "l1")))
"""Two leaves, two nodes each, two accelerators a node."""


NEWER_NODE = {
    "name": "n0",
    "accelerators": 2,
    "domains": {"leaf": "l0", "galaxy": "g0"},
    "islands": {},
    "accelerator": None,
    "alive": True,
    "schedulable": True,
}


def _observe(app: FastAPI, fabric: Fabric = FABRIC) -> None:
    with app.state.database.write() as session:
        nodes.observe(session, fabric, now=datetime.now(UTC))


def _place(app: FastAPI, job: str, *slots: Slot) -> None:
    axes = (AxisOutcome("tp", Tier.ISLAND, "required", 1, Tier.ISLAND, 0),)
    with app.state.database.write() as session:
        placements.insert(
            session,
            job,
            1,
            Placement(slots, axes, ("because",)),
            FABRIC,
            first_attempt=1,
            restarts_used=0,
            deaths_at_step=(0, 0),
            now=datetime.now(UTC),
        )


def test_empty_cluster_without_a_controller(client: TestClient) -> None:
    seen = client.get("/api/v1/cluster").json()
    assert (seen["nodes"], seen["total_slots"], seen["free_slots"]) == ([], 0, 0)
    assert (seen["controller"], seen["cluster"]) == ("down", "down")
    assert "controller" in seen["problems"][0]


def test_who_holds_what(app: FastAPI, client: TestClient, submit: Submit) -> None:
    lost = _node("n3", "l1", alive=False)
    cordoned = _node("n2", "l1", schedulable=False)
    _observe(app, Fabric((*FABRIC.nodes[:2], cordoned, lost)))
    job = submit(name="holder", parallelism={"tp": 2})
    _place(app, job, Slot("n1", 0), Slot("n3", 1))
    seen = client.get("/api/v1/cluster").json()
    by_name = {node["name"]: node for node in seen["nodes"]}
    assert by_name["n1"]["slots"] == [
        {"index": 0, "job_id": job, "job_name": "holder", "rank": 0},
        {"index": 1, "job_id": None, "job_name": None, "rank": None},
    ]
    assert (by_name["n0"]["island"], by_name["n0"]["leaf"], by_name["n0"]["spine"]) == (
        "island-n0",
        "l0",
        None,
    )
    assert (by_name["n2"]["schedulable"], by_name["n3"]["alive"]) == (False, False)
    assert (seen["total_slots"], seen["free_slots"]) == (
        6,
        3,
    )  # n0, n1, n2 live; n2 is cordoned, n1 half taken
    assert "Node n3 is lost. 1 of its slots are still held by jobs." in seen["problems"]
    scraped = client.get("/metrics").text
    assert "atoll_slots 6.0" in scraped
    assert "atoll_slots_free 3.0" in scraped


@pytest.mark.parametrize(
    ("reachable", "expected"), [(True, ("up", "up")), (False, ("up", "down")), (None, ("up", "down"))]
)
def test_controller_and_cluster(
    app: FastAPI, client: TestClient, reachable: bool | None, expected: tuple[str, str]
) -> None:
    with app.state.database.write() as session:
        token = leases.acquire(
            session, "c", now=datetime.now(UTC), ttl=timedelta(hours=1), endpoint="http://127.0.0.1:1"
        )
        assert token is not None
        if reachable is not None:
            leases.report_cluster(
                session, token, reachable=reachable, message="" if reachable else "Ray is away."
            )
    seen = client.get("/api/v1/cluster").json()
    assert (seen["controller"], seen["cluster"]) == expected
    assert bool(seen["problems"]) is (expected != ("up", "up"))


def test_lease_that_ran_out_is_a_dead_controller(app: FastAPI, client: TestClient) -> None:
    long_ago = datetime.now(UTC) - timedelta(hours=1)
    with app.state.database.write() as session:
        leases.acquire(session, "c", now=long_ago, ttl=timedelta(seconds=10), endpoint=None)
    assert client.get("/api/v1/cluster").json()["controller"] == "down"


def test_plan_that_fits(app: FastAPI, client: TestClient) -> None:
    _observe(app)
    answer = client.post("/api/v1/plan", json=job_file(parallelism={"tp": 2, "pp": 2, "microbatches": 2}))
    assert answer.status_code == 200, answer.text
    plan = answer.json()
    assert (plan["fits"], plan["refusal"], plan["plan"], plan["world_size"]) == (True, None, "tp2 pp2", 4)
    ranks = plan["ranks"]
    assert [rank["coordinates"] for rank in ranks] == [
        {"tp": t, "cp": 0, "pp": p, "dp": 0} for p in range(2) for t in range(2)
    ]
    assert ranks[0]["island"] == ranks[1]["island"] != ranks[2]["island"]
    assert len({rank["leaf"] for rank in ranks}) == 1
    assert {axis["axis"] for axis in plan["axes"]} >= {"tp", "pp"}
    assert [(cost["axis"], cost["widest"]) for cost in plan["costs"]] == [("tp", "island"), ("pp", "leaf")]
    assert all(cost["seconds"] > 0 for cost in plan["costs"])
    assert client.get("/api/v1/jobs").json()["items"] == []


H100S = Fabric(
    tuple(Node(f"h{n}", 8, {Tier.ISLAND: f"h{n}", Tier.LEAF: "l"}, accelerator="H100") for n in range(2))
)


def test_plan_says_what_a_step_costs(app: FastAPI, client: TestClient) -> None:
    _observe(app, H100S)
    asked = {"tokens": 1e9, "checkpoint_stall_s": 2, "gpu_hours_between_failures": 1000}
    document = job_file(parallelism={"dp": 8, "zero": 1})
    plan = client.post("/api/v1/plan", json=document, params=asked).json()
    found = plan["estimate"]
    assert (found["plan"], found["accelerator"], found["fits"]) == ("dp8 zero1", "H100-SXM", True)
    assert found["step_s"] == pytest.approx(sum(found["seconds"].values()))
    assert found["budget_tokens"] == 1e9
    assert found["checkpoint"]["failures_s"] == 1000 * 3600 / 8
    assert plan["search"] is None
    assert "island: link unknown, taken as nvlink4, usual for H100-SXM" in plan["notes"]


@pytest.mark.parametrize("name", ["tokens", "checkpoint_stall_s", "gpu_hours_between_failures"])
def test_plan_refuses_what_cannot_be_counted(app: FastAPI, client: TestClient, name: str) -> None:
    _observe(app, H100S)
    for value in ("inf", "nan", "1e308", "0", "-1"):
        asked = {"checkpoint_stall_s": "1"} | {name: value}
        answer = client.post("/api/v1/plan", json=job_file(parallelism={}), params=asked)
        assert answer.status_code == 422, value
        assert name in answer.text


def test_plan_searches_when_asked(app: FastAPI, client: TestClient) -> None:
    _observe(app, H100S)
    asked = {"auto": True, "ranks": 4}
    plan = client.post("/api/v1/plan", json=job_file(parallelism={}), params=asked).json()
    found = plan["search"]
    assert 1 <= len(found["best"]) <= 10
    assert found["considered"] == len(found["best"]) + sum(found["lost"].values())
    times = [best["step_s"] for best in found["best"]]
    assert times == sorted(times)
    for best in found["best"]:
        degrees = best["parallelism"]
        assert degrees["tp"] * degrees["pp"] * degrees["dp"] * degrees["cp"] == 4


def test_plan_on_unknown_accelerators_has_no_estimate(app: FastAPI, client: TestClient) -> None:
    _observe(app, Fabric((Node("n0", 2),)))
    plan = client.post("/api/v1/plan", json=job_file()).json()
    assert plan["estimate"] is None
    assert plan["notes"] == [
        "no estimate: the fabric has an accelerator that orchestrator/estimate/hardware.yaml does not name"
    ]


@pytest.mark.parametrize(
    "wrong", [{"ranks": 0}, {"tokens": -1}, {"checkpoint_stall_s": 0}, {"auto": "maybe"}]
)
def test_wrong_questions_of_a_plan_are_refused(client: TestClient, wrong: dict[str, object]) -> None:
    answer = client.post("/api/v1/plan", json=job_file(), params=wrong)
    assert answer.status_code == 422
    assert next(iter(wrong)) in answer.text


def test_plan_counts_what_is_taken(app: FastAPI, client: TestClient, submit: Submit) -> None:
    """One slot of each island is taken: eight minus four are free, and no tensor group of two fits."""
    _observe(app)
    _place(app, submit(), *(Slot(f"n{i}", 0) for i in range(4)))
    plan = client.post("/api/v1/plan", json=job_file(parallelism={"tp": 2})).json()
    assert (plan["fits"], plan["ever"], plan["ranks"]) == (False, True, [])
    assert plan["refusal"]


def test_plan_counts_the_cpus_of_running_jobs(app: FastAPI, client: TestClient, submit: Submit) -> None:
    _observe(app, Fabric((replace(FABRIC.nodes[0], cpus=4.0),)))
    with app.state.database.write() as session:
        placements.insert(
            session,
            submit(),
            1,
            Placement((Slot("n0", 0),), (), cpus_per_rank=2.5),
            FABRIC,
            first_attempt=1,
            restarts_used=0,
            deaths_at_step=(0, 0),
            now=datetime.now(UTC),
        )
    plan = client.post("/api/v1/plan", json=job_file(resources={"cpus_per_rank": 2})).json()
    assert (plan["fits"], plan["ever"]) == (False, True)
    assert plan["refusal"].startswith("node n0: 1.5 of 4 CPUs free, 2 needed")


def test_plan_that_never_fits(app: FastAPI, client: TestClient) -> None:
    _observe(app)
    plan = client.post("/api/v1/plan", json=job_file(parallelism={"tp": 4}, model={"kv_heads": 4})).json()
    assert (plan["fits"], plan["ever"]) == (False, False)
    assert plan["changes"] == ["It fits now with placement.tp {tier: leaf} instead of island."]


def test_what_a_newer_version_wrote_is_shown_as_text(
    app: FastAPI, client: TestClient, submit: Submit
) -> None:
    """An API that is still of the older version while the other replicas are replaced."""
    job = submit(name="newer", parallelism={"tp": 2})
    _observe(app)
    _place(app, job, Slot("n0", 0), Slot("n0", 1))
    newer = {"state": "paused", "reason": "on-a-break", "spec": {"parallelism": {"tp": 2, "colour": 3}}}
    with app.state.database.write() as session:
        session.execute(update(Job).where(Job.id == job).values(newer))
        session.execute(update(ClusterNode).values(domains={"leaf": "l0", "galaxy": "g0"}))
        session.execute(update(Event).where(Event.job_id == job).values(kind="dreamt"))
        session.execute(update(StoredPlacement).values(nodes=[NEWER_NODE]))
    shown = client.get(f"/api/v1/jobs/{job}")
    assert shown.status_code == 200, shown.text
    assert (shown.json()["state"], shown.json()["reason"]) == ("paused", "on-a-break")
    ranks = shown.json()["placement"]["ranks"]
    assert [(rank["node"], rank["leaf"], rank["coordinates"]) for rank in ranks] == [("n0", "l0", {})] * 2
    assert client.get("/api/v1/jobs?name=newer").json()["items"][0]["state"] == "paused"
    assert {event["kind"] for event in client.get(f"/api/v1/jobs/{job}/events").json()["items"]} == {"dreamt"}
    assert client.get("/api/v1/cluster").json()["nodes"][0]["leaf"] == "l0"
    assert client.post("/api/v1/plan", json=job_file()).status_code == 200
    assert client.get(f"/api/v1/jobs/{job}/logs").status_code in (404, 503)
    assert client.post(f"/api/v1/jobs/{job}/cancel").status_code == 202
    assert client.get("/metrics").status_code == 200


def test_placement_in_the_detail(app: FastAPI, client: TestClient, submit: Submit) -> None:
    job = submit(parallelism={"tp": 2})
    _place(app, job, Slot("n0", 0), Slot("n0", 1))
    placed = client.get(f"/api/v1/jobs/{job}").json()["placement"]
    assert placed["certified"] is False
    assert placed["ranks"][1] == {
        "rank": 1,
        "coordinates": {"tp": 1, "cp": 0, "pp": 0, "dp": 0},
        "node": "n0",
        "index": 1,
        "island": "island-n0",
        "leaf": "l0",
        "pid": None,
        "device": None,
    }
    assert placed["axes"][0] == {
        "axis": "tp",
        "asked": "island",
        "mode": "required",
        "groups": 1,
        "widest": "island",
        "outside": 0,
    }
    with app.state.database.write() as session:
        facts = [RankFacts(rank, "n0", rank, 100 + rank, "cpu") for rank in range(2)]
        placements.certify(session, job, 1, facts)
    certified = client.get(f"/api/v1/jobs/{job}").json()["placement"]
    assert certified["certified"] is True
    assert [(r["pid"], r["device"]) for r in certified["ranks"]] == [(100, "cpu"), (101, "cpu")]


def test_a_node_is_cordoned_with_a_reason_and_let_again(app: FastAPI, client: TestClient) -> None:
    _observe(app)
    answer = client.put("/api/v1/nodes/n1/cordon", json={"reason": "fan replaced on Friday"})
    assert answer.status_code == 200
    assert (answer.json()["who"], answer.json()["reason"]) == ("operator", "fan replaced on Friday")
    again = client.put("/api/v1/nodes/n1/cordon", json={"reason": "another"}).json()
    assert again == answer.json(), "it stays as it was first said"
    shown = {node["name"]: node["cordon"] for node in client.get("/api/v1/cluster").json()["nodes"]}
    assert shown == {"n0": None, "n1": answer.json(), "n2": None, "n3": None}
    for _ in range(2):
        assert client.delete("/api/v1/nodes/n1/cordon").status_code == 200
    assert all(node["cordon"] is None for node in client.get("/api/v1/cluster").json()["nodes"])


def test_a_node_that_was_never_seen_is_not_cordoned(app: FastAPI, client: TestClient) -> None:
    _observe(app)
    answer = client.put("/api/v1/nodes/n9/cordon", json={"reason": "why not"})
    assert (answer.status_code, answer.json()["detail"]) == (404, "There is no node n9.")
    empty = client.put("/api/v1/nodes/n1/cordon", json={"reason": ""})
    assert empty.status_code == 422
