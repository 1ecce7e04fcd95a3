"""Plans compared: the job's own beside those that a search finds, and submitted from there."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import httpx2
from playwright.sync_api import Page, expect

from tests.web.conftest import Opener, Server

JOB = """
name: compared
model: {layers: 8, hidden: 1024, heads: 8, kv_heads: 8, ffn_hidden: 2816}
parallelism: {tp: 8, dp: 1}
training: {steps: 50, global_batch: 16, sequence_length: 1024, precision: bf16}
"""


def compare(page: Page, job: str = JOB) -> None:
    page.get_by_label("Job file, YAML or JSON").fill(job)
    page.get_by_role("button", name="Compare plans").click()


def test_plans_are_compared_and_submitted(idle: Server, visit: Opener) -> None:
    page = visit(f"{idle.url}/plan")
    compare(page)
    plans = page.get_by_role("article")
    expect(plans).to_have_count(11)
    own = plans.first
    expect(own).to_contain_text("the job's own plan")
    expect(own).to_contain_text("tp8")
    expect(own.get_by_role("img", name="Memory of the fullest rank: parameters")).to_be_visible()
    expect(own.get_by_role("row", name=re.compile("^tp 8 island"))).to_be_visible()
    expect(page.get_by_role("heading", name="Why the others lost")).to_be_visible()
    placed = page.get_by_role("region", name="Seconds of communication by axis and tier, as placed")
    expect(placed.get_by_role("columnheader", name="on island links")).to_be_visible()

    best = plans.nth(1)
    expect(best).to_contain_text("times as fast")
    chosen = best.get_by_role("heading").inner_text().removeprefix("1. ")
    best.get_by_role("button", name="Submit with this plan").click()
    expect(page).to_have_url(re.compile(r"/jobs/[0-9a-f-]{36}$"))
    job = httpx2.get(f"{idle.url}/api/v1/jobs/{page.url.rsplit('/', 1)[1]}").json()
    assert (job["name"], job["plan"]) == ("compared", chosen)


def test_a_plan_goes_on_to_the_editor(idle: Server, visit: Opener) -> None:
    page = visit(f"{idle.url}/submit")
    page.get_by_label("Job file, YAML or JSON").fill(JOB)
    page.get_by_role("button", name="Compare plans").click()
    expect(page.get_by_label("Job file, YAML or JSON")).to_have_value(JOB)
    page.get_by_label("Accelerators").fill("4")
    page.get_by_role("button", name="Compare plans").click()
    page.get_by_role("article").nth(1).get_by_role("button", name="Edit the job file").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Submit a job")
    expect(page.get_by_label("Job file, YAML or JSON")).to_have_value(re.compile("name: compared"))
    page.get_by_role("button", name="Check plan").click()
    expect(page.get_by_role("heading", name=re.compile("Plan: .*4 ranks"))).to_be_visible()


def test_what_is_wrong_is_told(idle: Server, visit: Opener) -> None:
    page = visit(f"{idle.url}/plan")
    compare(page, "name: Not A Name\ntraining:\n  steps: 0\n")
    wrong = page.get_by_role("alert")
    expect(wrong).to_contain_text("line 1")
    wrong.get_by_role("button", name="line 3").click()
    expect(page.get_by_label("Job file, YAML or JSON")).to_be_focused()


def test_a_search_that_fails_can_be_repeated(idle: Server, visit: Opener) -> None:
    page = visit(f"{idle.url}/plan")
    page.route(
        "**/api/v1/plan*",
        lambda route: route.fulfill(
            status=503,
            content_type="application/problem+json",
            body='{"type": "x", "title": "x", "status": 503, "detail": "The search was not done within 60 s."}',
        ),
    )
    compare(page)
    expect(page.get_by_role("alert")).to_contain_text("not done within 60 s")
    page.unroute("**/api/v1/plan*")
    page.get_by_role("button", name="Try again").click()
    expect(page.get_by_role("article")).to_have_count(11)


def test_it_fits_and_is_accessible(
    idle: Server, visit: Opener, findings: Callable[[Page], list[str]], tmp_path: Path
) -> None:
    wrong = []
    for scheme in ("light", "dark"):
        page = visit(f"{idle.url}/plan", scheme=scheme)
        compare(page)
        expect(page.get_by_role("article")).to_have_count(11)
        page.get_by_text("Figures").first.click()
        for width in (1440, 390):
            page.set_viewport_size({"width": width, "height": 900})
            page.screenshot(path=tmp_path / f"{width}-{scheme}.png", full_page=True)
            scroll = page.evaluate("document.scrollingElement.scrollWidth")
            if scroll > width:
                wrong.append(f"{width} px, {scheme}: {scroll} px wide")
            wrong += [f"{width} px, {scheme}: {finding}" for finding in findings(page)]
    assert wrong == []
