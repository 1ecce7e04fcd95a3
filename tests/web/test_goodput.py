"""Where GPU time went, on the pages of a job and of the cluster: a waterfall whose rows open, and each repair."""

from __future__ import annotations

import re

from playwright.sync_api import expect

from tests.web.conftest import Opener, Server


def test_a_waterfall_opens_and_says_what_a_class_means(seeded: Server, visit: Opener) -> None:
    page = visit(f"{seeded.url}/jobs/{seeded.ids['running']}?tab=goodput")
    falls = page.get_by_role("list", name="GPU time by class")
    rows = falls.locator("summary")
    expect(rows.first).to_contain_text("Held")
    expect(rows.first).to_contain_text("100 %")
    lost = rows.filter(has_text="Lost work")
    expect(lost).to_contain_text(re.compile(r"[1-9]\d* GPU-[sh]"))
    meaning = page.get_by_text("Steps that nothing is left of").last
    expect(meaning).not_to_be_visible()
    lost.click()
    expect(meaning).to_be_visible()
    expect(rows.filter(has_text="Queued")).to_contain_text("not held")
    expect(rows.filter(has_text="Idle spares")).to_have_count(0)


def test_a_fault_and_its_repair(seeded: Server, visit: Opener) -> None:
    page = visit(f"{seeded.url}/jobs/{seeded.ids['running']}?tab=goodput", width=390)
    repairs = page.get_by_role("list", name="Faults and repairs").get_by_role("listitem")
    expect(repairs).to_have_count(1)
    expect(repairs.first).to_contain_text("rank died after step 46: in place")
    # Told at 24 s, its cause settled at 27 s, all ranks ready at 45 s.
    expect(repairs.first.get_by_role("img")).to_have_attribute(
        "aria-label", re.compile("unnoticed .* · settling 3 s · repair 18 s · first step 1 s")
    )


def test_a_job_in_the_queue_has_no_fault(seeded: Server, visit: Opener) -> None:
    page = visit(f"{seeded.url}/jobs/{seeded.ids['queued']}?tab=goodput")
    expect(page.get_by_text("Nothing has broken in this job.")).to_be_visible()
    expect(page.get_by_role("list", name="GPU time by class").locator("summary")).to_have_count(3)


def test_totals_of_all_jobs(seeded: Server, visit: Opener) -> None:
    page = visit(f"{seeded.url}/cluster")
    table = page.get_by_role("region", name="Goodput by project")
    expect(table.get_by_role("row", name="research")).to_be_visible()
    expect(table.get_by_role("row", name="vision")).to_be_visible()
    jobs = int(
        table.get_by_role("row", name="default").get_by_role("cell").nth(1).inner_text().replace(",", "")
    )
    page.get_by_text("1 week", exact=True).click()
    expect(table.get_by_role("row", name="default").get_by_role("cell").nth(1)).not_to_have_text(str(jobs))
