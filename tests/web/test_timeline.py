"""The timeline of a job: drawing by keyboard, table, bubbles, and what stands there before there is one."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from tests.web.conftest import Opener, Server


def test_the_schedule_is_walked_by_keyboard_and_listed_as_a_table(seeded: Server, visit: Opener) -> None:
    page = visit(f"{seeded.url}/jobs/{seeded.ids['running']}?tab=timeline")
    panel = page.get_by_role("tabpanel", name="Timeline")
    drawing = panel.get_by_role("application", name="Schedule of step 50 on 2 ranks")
    drawing.focus()
    expect(
        panel.get_by_text("Rank 0, stage 0: forward of micro-batch 0, 20 ms, from 0 ms to 20 ms")
    ).to_be_visible()
    page.keyboard.press("ArrowDown")
    expect(
        panel.get_by_text("Rank 2, stage 1: forward of micro-batch 0, 20 ms, from 20.4 ms")
    ).to_be_visible()
    page.keyboard.press("ArrowRight")
    expect(panel.get_by_text("Rank 2, stage 1: backward of micro-batch 0, 40 ms")).to_be_visible()
    expect(panel.get_by_text("25 %", exact=True)).to_be_visible()  # (p-1)/m in theory
    expect(panel.get_by_text("one host and read one clock")).to_be_visible()
    panel.get_by_text("table", exact=True).click()
    rows = panel.get_by_role("region", name="Work and idleness of each rank").get_by_role("row")
    expect(rows).to_have_count(3)
    expect(rows.nth(2)).to_contain_text("20.4 ms")


def test_another_step_is_chosen(seeded: Server, visit: Opener) -> None:
    page = visit(f"{seeded.url}/jobs/{seeded.ids['running']}?tab=timeline")
    page.get_by_label("Step", exact=True).select_option("2, attempt 1")
    expect(page.get_by_role("application", name="Schedule of step 2 on 2 ranks")).to_be_visible()


def test_what_stands_there_before_there_is_one(seeded: Server, visit: Opener) -> None:
    page = visit(f"{seeded.url}/jobs/{seeded.ids['starting']}?tab=timeline")
    expect(page.get_by_text("No timeline yet")).to_be_visible()
    page = visit(f"{seeded.url}/jobs/{seeded.ids['cancelled']}?tab=timeline")
    expect(page.get_by_text("No timeline was recorded")).to_be_visible()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1440])
def test_nothing_is_wrong_with_it(
    seeded: Server, visit: Opener, findings: Callable[[Page], list[str]], scheme: str, width: int
) -> None:
    page = visit(f"{seeded.url}/jobs/{seeded.ids['running']}?tab=timeline", width=width, scheme=scheme)
    expect(page.get_by_role("application", name="Schedule of step 50")).to_be_visible()
    assert findings(page) == []
    overflow = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    assert overflow <= 0
