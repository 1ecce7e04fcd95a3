"""The queue page: the order, the reasons, what is kept, and what each project has."""

from __future__ import annotations

import re
from collections.abc import Callable

from playwright.sync_api import Page, expect

from tests.web.conftest import TOKEN, Opener, Server


def test_jobs_in_the_order_in_which_they_are_looked_at(seeded: Server, visit: Opener) -> None:
    """pretrain-en has the higher priority; vision holds and used nothing, research used 1.5, default most."""
    page = visit(f"{seeded.url}/queue")
    jobs = page.get_by_role("region", name="Waiting jobs").get_by_role("row")
    expect(jobs).to_have_count(5)
    for row, name in enumerate(("pretrain-en", "vision-tuner", "llama-405b", "long-context"), start=1):
        expect(jobs.nth(row).get_by_role("cell").first).to_have_text(str(row))
        expect(jobs.nth(row)).to_contain_text(name)
    expect(jobs.nth(1)).to_contain_text("8 on n0, n1, n2 and 1 more")
    expect(jobs.nth(1)).to_contain_text(re.compile(r"free at 2026-12-0[123] \d\d:\d0:00 at the latest"))
    expect(jobs.nth(2)).to_contain_text("project vision holds 0 of its quota of 4 accelerators, 8 needed")
    jobs.nth(3).get_by_role("link", name="llama-405b").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("llama-405b")


def test_projects_and_their_quotas(seeded: Server, visit: Opener) -> None:
    """demo holds eight slots of default: its share is 8 + 6.25."""
    page = visit(f"{seeded.url}/queue")
    projects = page.get_by_role("region", name="Projects").last.get_by_role("row")
    expect(projects).to_have_count(5)
    default = projects.filter(has=page.get_by_text("default", exact=True))
    expect(default).to_contain_text("8, no quota")
    expect(default).to_contain_text("14.3")
    vision = projects.filter(has=page.get_by_text("vision", exact=True))
    expect(vision.get_by_role("meter", name="Quota of vision")).to_have_attribute("aria-valuemax", "4")
    expect(vision).to_contain_text("8 slots in 1 job")


def test_an_empty_queue(guarded: Server, visit: Opener) -> None:
    page = visit(f"{guarded.url}/queue")
    page.get_by_role("dialog").get_by_label("Token", exact=True).fill(TOKEN)
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="No job waits")).to_be_visible()
    expect(page.get_by_text("not told by a controller yet")).to_be_visible()


def test_it_says_when_the_server_is_gone(
    seeded: Server, visit: Opener, cut_off: Callable[[Page], None]
) -> None:
    page = visit(f"{seeded.url}/queue")
    page.wait_for_selector("text=vision-tuner")
    cut_off(page)
    expect(page.get_by_role("alert")).to_contain_text("does not answer")
    expect(page.get_by_text("vision-tuner")).to_be_visible()
