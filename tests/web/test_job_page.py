"""The job page on recorded jobs: placement by keyboard, logs, events, failures."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from tests.web.conftest import Opener, Server


def test_ranks_are_walked_by_keyboard_and_listed_as_a_table(seeded: Server, visit: Opener) -> None:
    page = visit(f"{seeded.url}/jobs/{seeded.ids['running']}")
    drawing = page.get_by_role("application", name="Placement of 8 ranks")
    drawing.focus()
    expect(page.get_by_text("Rank 0: stage 0, replica 0, tensor rank 0")).to_be_visible()
    expect(page.get_by_text("leaf l0 · island i0 · node n0 · slot 0 · pid 4100, cpu")).to_be_visible()
    page.keyboard.press("End")
    expect(page.get_by_text("Rank 7: stage 1, replica 1, tensor rank 1")).to_be_visible()
    page.get_by_text("by replica").click()
    expect(page.get_by_role("list", name="Legend")).to_contain_text("replica 1")
    page.get_by_text("table", exact=True).click()
    table = page.get_by_role("region", name="Ranks and where they sit")
    expect(table.get_by_role("row")).to_have_count(9)
    expect(table.get_by_role("row").nth(8)).to_contain_text("4107")


def test_enter_on_a_rank_opens_its_log(seeded: Server, visit: Opener) -> None:
    page = visit(f"{seeded.url}/jobs/{seeded.ids['succeeded']}")
    page.get_by_role("application", name="Placement of 8 ranks").focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    expect(page.get_by_role("tab", name="Logs")).to_have_attribute("aria-selected", "true")
    expect(page.get_by_role("log")).to_contain_text("rank 1 step 4999")


def test_logs_are_searched_extended_and_downloaded(seeded: Server, visit: Opener) -> None:
    page = visit(f"{seeded.url}/jobs/{seeded.ids['succeeded']}?tab=logs")
    log = page.get_by_role("log")
    expect(log).to_contain_text("rank 0 step 4999")
    page.get_by_label("Rank", exact=True).select_option("5")
    expect(log).to_contain_text("rank 5 step 4999")
    earlier = page.get_by_role("button", name="Read earlier lines")
    while earlier.is_visible():
        before = page.get_by_text("lines shown").inner_text()
        earlier.click()
        expect(page.get_by_text("lines shown")).not_to_have_text(before)
    expect(page.get_by_text("5,000 lines shown")).to_be_visible()
    page.get_by_label("Search the lines shown").fill("STEP 77 ")
    expect(page.get_by_text("1 of 1", exact=True)).to_be_visible()
    expect(log.locator("mark")).to_have_text("step 77 ")
    with page.expect_download() as download:
        page.get_by_role("button", name="Download").click()
    assert download.value.suggested_filename == "wiki-small-attempt2-rank5.log"
    assert download.value.path().read_text().count("\n") == 5_000


def test_history_is_told(seeded: Server, visit: Opener) -> None:
    page = visit(f"{seeded.url}/jobs/{seeded.ids['running']}")
    expect(page.get_by_text("Held-back loss 2.313 nats/token")).to_be_visible()
    expect(page.get_by_text("Rank 5 on node n2 was ended by signal 9 at step 46.")).to_be_visible()
    expect(page.get_by_role("img", name="Loss over steps, 5.")).to_be_visible()
    expect(page.get_by_text("1 dotted line")).to_be_visible()
    expect(page.get_by_text("live", exact=True)).to_be_visible()


def test_a_failure_shows_its_traceback(seeded: Server, visit: Opener) -> None:
    page = visit(f"{seeded.url}/jobs/{seeded.ids['failed']}")
    expect(page.locator("header").get_by_text("Rank 3 raised an error at step 17.")).to_be_visible()
    expect(page.get_by_text("The size of tensor a (128) must match")).to_be_visible()
    expect(page.get_by_role("button", name="Cancel job")).to_have_count(0)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_cancel_dialog_is_accessible(
    seeded: Server, visit: Opener, findings: Callable[[Page], list[str]], scheme: str
) -> None:
    page = visit(f"{seeded.url}/jobs/{seeded.ids['running']}", scheme=scheme)
    page.get_by_role("button", name="Cancel job").click()
    expect(page.get_by_role("button", name="Keep it running")).to_be_focused()
    assert findings(page) == []


def test_cancel_asks_first(seeded: Server, visit: Opener) -> None:
    page = visit(f"{seeded.url}/jobs/{seeded.ids['starting']}")
    page.get_by_role("button", name="Cancel job").click()
    page.get_by_role("button", name="Keep it running").click()
    expect(page.get_by_role("dialog")).to_be_hidden()
    page.get_by_role("button", name="Cancel job").click()
    page.get_by_role("button", name="Cancel the job").click()
    expect(page.get_by_text("Cancel requested", exact=True)).to_be_visible()
