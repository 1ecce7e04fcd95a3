"""Cluster page and submit form."""

from __future__ import annotations

import re
from pathlib import Path

from playwright.sync_api import expect

from tests.web.conftest import ROOT, Opener, Server


def test_cluster_tells_who_holds_what(seeded: Server, visit: Opener) -> None:
    page = visit(f"{seeded.url}/cluster")
    expect(page.get_by_text("5 of 6 alive")).to_be_visible()
    expect(page.get_by_label("Problems")).to_contain_text("Node n4 is lost.")
    drawing = page.get_by_role("application", name="Fabric with 12 slots")
    drawing.focus()
    expect(page.get_by_text("spine s0: 12 slots on 6 nodes: 8 held by 1 job")).to_be_visible()
    for _ in ("spine", "leaf", "node"):
        page.keyboard.press("Enter")
    expect(page.get_by_text("Rank 0 of demo")).to_be_visible()
    page.keyboard.press("End")
    expect(page.get_by_text("Out of use, the node takes no new work")).to_be_visible()
    page.keyboard.press("Home")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(seeded.ids["running"]))


def test_the_form_begins_with_the_demo() -> None:
    form = Path(ROOT, "web/src/pages/submit/demo.yaml").read_text()
    assert form == Path(ROOT, "examples/demo.yaml").read_text(), (
        "copy examples/demo.yaml to web/src/pages/submit/"
    )


def test_all_violations_are_shown_beside_their_lines(seeded: Server, visit: Opener) -> None:
    page = visit(f"{seeded.url}/submit")
    editor = page.get_by_label("Job file, YAML or JSON")
    editor.fill("name: Not A Name\nparallelism:\n  tp: 0\n  typ: 2\ntraining:\n  steps: 0\n")
    page.get_by_role("button", name="Check plan").click()
    wrong = page.get_by_role("alert")
    for field, line in (("name", 1), ("parallelism.tp", 3), ("parallelism.typ", 4), ("training.steps", 6)):
        item = wrong.get_by_role("listitem").filter(has=page.get_by_text(field, exact=True))
        expect(item).to_contain_text(f"line {line}")
    wrong.get_by_role("button", name="line 6").click()
    expect(editor).to_be_focused()
    selected = editor.evaluate("(area) => area.value.slice(area.selectionStart, area.selectionEnd)")
    assert selected == "  steps: 0"


def test_a_plan_that_does_not_fit_says_what_is_missing(seeded: Server, visit: Opener) -> None:
    page = visit(f"{seeded.url}/submit")
    page.get_by_role("button", name="Check plan").click()
    expect(page.get_by_text("It does not fit now. It would be queued until there is room.")).to_be_visible()
    page.get_by_label("Job file, YAML or JSON").fill(
        "name: wide\nparallelism: {tp: 64}\n"
        "model: {heads: 64, kv_heads: 64, hidden: 512, ffn_hidden: 512}\ntraining: {steps: 1}\n"
    )
    page.get_by_role("button", name="Check plan").click()
    expect(page.get_by_text("It can never fit on this cluster.")).to_be_visible()


def test_a_job_is_submitted_and_its_file_starts_another(idle: Server, visit: Opener) -> None:
    page = visit(f"{idle.url}/submit")
    page.get_by_label("Job file, YAML or JSON").fill("name: from-the-form\ntraining:\n  steps: 7\n")
    with page.expect_request(
        lambda request: request.method == "POST" and request.url.endswith("/jobs")
    ) as sent:
        page.get_by_role("button", name="Submit").click()
    assert re.fullmatch("[0-9a-f]{32}", sent.value.headers["idempotency-key"])
    expect(page.get_by_role("heading", level=1)).to_have_text("from-the-form")
    page.get_by_role("tab", name="Job file").click()
    page.get_by_role("link", name="Start a new job from this file").click()
    expect(page.get_by_label("Job file, YAML or JSON")).to_have_value(re.compile("steps: 7"))
