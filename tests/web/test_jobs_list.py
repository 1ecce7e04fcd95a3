"""The list of 10,010 jobs: filters in the address, pages by cursor, live rows."""

from __future__ import annotations

import re

from playwright.sync_api import expect

from tests.web.conftest import Opener, Server


def test_filters_are_in_the_address_and_survive_a_reload(seeded: Server, visit: Opener) -> None:
    page = visit(f"{seeded.url}/jobs")
    page.get_by_label("State").select_option("queued")
    expect(page).to_have_url(re.compile(r"state=queued"))
    expect(page.get_by_role("link", name="pretrain-en")).to_be_visible()
    expect(page.get_by_role("link", name="demo")).to_have_count(0)
    page.get_by_label("Name contains").fill("llama")
    expect(page).to_have_url(re.compile(r"name=llama"))
    expect(page.get_by_role("row")).to_have_count(2)  # the head and llama-405b
    page.reload()
    expect(page.get_by_role("link", name="llama-405b")).to_be_visible()
    expect(page.get_by_label("Name contains")).to_have_value("llama")
    page.get_by_label("Name contains").fill("no-such-name")
    page.get_by_role("button", name="Clear the filters").click()
    expect(page.get_by_label("Name contains")).to_have_value("")
    expect(page.get_by_role("row")).to_have_count(51)


def test_pages_go_on_and_back(seeded: Server, visit: Opener) -> None:
    page = visit(f"{seeded.url}/jobs?name=sweep-0")
    expect(page.get_by_role("link", name="sweep-09999")).to_be_visible()
    following = page.get_by_role("button", name="Next 50")
    following.click()
    expect(page.get_by_role("link", name="sweep-09949")).to_be_visible()
    following.click()
    expect(page.get_by_role("link", name="sweep-09899")).to_be_visible()
    expect(page.get_by_text("50 jobs on page 3")).to_be_visible()
    page.get_by_role("button", name="Previous 50").click()
    expect(page.get_by_role("link", name="sweep-09949")).to_be_visible()
    page.reload()
    expect(page.get_by_role("link", name="sweep-09949")).to_be_visible()
    page.get_by_role("button", name="Newest").click()
    expect(page.get_by_role("link", name="sweep-09999")).to_be_visible()
    assert page.get_by_role("row").count() == 51  # however many jobs there are


def test_a_row_says_state_progress_and_figures_with_units(seeded: Server, visit: Opener) -> None:
    page = visit(f"{seeded.url}/jobs?state=running")
    row = page.get_by_role("row").filter(has_text="demo")
    for text in (
        "running",
        "83 / 120 steps",
        "69.2 %",
        "2.233",
        "tokens/s",
        "tp2 pp2 dp2",
        "8 ranks, 1 restart",
    ):
        expect(row).to_contain_text(text)
    expect(row.get_by_role("progressbar")).to_have_attribute("aria-valuenow", "83")
