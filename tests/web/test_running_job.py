"""The main path on a real job: submitted in the form, placed, trained by real ranks, watched, ended."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from tests.web.conftest import Opener, Server

JOB = """name: watched
model: {layers: 2, hidden: 32, heads: 2, kv_heads: 2, ffn_hidden: 64}
parallelism: {tp: 2, pp: 2, dp: 2, microbatches: 2}
training: {steps: 400, global_batch: 8, sequence_length: 32, eval_every: 10}
checkpoint: {every: 10}
"""
TRAINS_IN_MS = 240_000


@pytest.mark.timeout(900)
def test_a_real_job_is_watched_from_submission_to_cancel(
    live: Server, visit: Opener, findings: Callable[[Page], list[str]]
) -> None:
    page = visit(f"{live.url}/submit")
    page.get_by_label("Job file, YAML or JSON").fill(JOB)
    plan = page.get_by_role("button", name="Check plan")
    plan.click()
    expect(page.get_by_text(re.compile("It fits now|It does not fit now|never fit")).first).to_be_visible()
    fits = page.get_by_text("It fits now. Every rank would run here:")
    for _ in range(60):  # nodes of a fresh cluster come one by one
        if fits.is_visible():
            break
        page.wait_for_timeout(1_000)
        plan.click()
        plan.and_(page.locator(":not([data-loading])")).wait_for()
    expect(fits).to_be_visible()
    expect(page.get_by_role("application", name="Placement of 8 ranks")).to_be_visible()

    page.get_by_role("button", name="Submit").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("watched")
    expect(page).to_have_title("watched · running · Atoll", timeout=TRAINS_IN_MS)
    expect(page.get_by_text("certified", exact=True).first).to_be_visible(timeout=TRAINS_IN_MS)
    expect(page.get_by_role("img", name="Loss over steps")).to_be_visible(timeout=TRAINS_IN_MS)
    expect(page.get_by_text("Held-back loss").first).to_be_visible(timeout=TRAINS_IN_MS)
    bar = page.get_by_role("progressbar")
    seen = int(bar.get_attribute("aria-valuenow") or 0)
    page.wait_for_function(
        "(seen) => Number(document.querySelector('[role=progressbar]').getAttribute('aria-valuenow')) > seen",
        arg=seen,
        timeout=TRAINS_IN_MS,
    )
    assert findings(page) == []

    page.get_by_role("tab", name="Checkpoints").click()
    expect(page.get_by_text("committed", exact=True).first).to_be_visible(timeout=TRAINS_IN_MS)
    page.get_by_role("tab", name="Logs").click()
    expect(page.get_by_text(re.compile(r"lines? shown"))).to_be_visible(timeout=TRAINS_IN_MS)

    cluster = visit(f"{live.url}/cluster")
    expect(cluster.get_by_label("Who holds what")).to_contain_text("watched")
    expect(cluster.get_by_text("8 slots").first).to_be_visible()

    page.get_by_role("button", name="Cancel job").click()
    page.get_by_role("button", name="Cancel the job").click()
    expect(page).to_have_title("watched · cancelled · Atoll", timeout=TRAINS_IN_MS)
    expect(cluster.get_by_label("Who holds what")).not_to_contain_text("watched", timeout=TRAINS_IN_MS)
