"""The fabric explorer with 10,240 accelerators: finding, zooming, keys, words, and the work of a frame."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.web.conftest import PATIENCE_MS, Opener, Server

ACCELERATORS = 10_240
NODES = 1_280


def wait_until_drawn(page: Page, least: int, most: int) -> None:
    """Waits for a frame with so many things in it: rectangles, crosses, labels."""
    canvas = page.locator("canvas[data-drawn]")
    end = time.monotonic() + PATIENCE_MS / 1000
    while not least <= (drawn := int(canvas.get_attribute("data-drawn") or 0)) <= most:
        assert time.monotonic() < end, f"{drawn} drawn, {least} to {most} expected"
        page.wait_for_timeout(50)


def test_a_node_is_found_by_name_and_shown(large: Server, visit: Opener) -> None:
    page = visit(f"{large.url}/cluster")
    find = page.get_by_label("Find a node by its name")
    find.fill("GPU064")
    expect(page.get_by_role("status").filter(has_text="10 nodes:")).to_contain_text("and 2 more")
    find.fill("gpu0640")
    find.press("Enter")
    expect(page).to_have_url(re.compile("at=node"))
    place = page.get_by_label("Place in the fabric")
    expect(place).to_have_text(re.compile("Fabric.*core c1.*spine s4.*leaf l40.*node gpu0640"))
    expect(page.get_by_role("region", name="Inside node gpu0640").get_by_role("row")).to_have_count(9)
    find.fill("no such node")
    expect(page.get_by_text("No node has this in its name.")).to_be_visible()


def test_a_frame_costs_what_is_on_the_screen(large: Server, visit: Opener) -> None:
    """Every slot once when all of them are on the screen; a few hundred things inside a leaf; nodes on a phone."""
    page = visit(f"{large.url}/cluster")
    wait_until_drawn(page, ACCELERATORS, ACCELERATORS + NODES + 500)
    page.get_by_role("button", name="core c1").click()
    page.get_by_role("button", name="spine s7").click()
    page.get_by_role("button", name="leaf l79").click()
    wait_until_drawn(page, 128, 1000)
    page.get_by_role("button", name="Whole fabric").click()
    wait_until_drawn(page, ACCELERATORS, ACCELERATORS + NODES + 500)
    phone = visit(f"{large.url}/cluster", width=390)
    wait_until_drawn(phone, NODES, 3 * NODES)


def test_wheel_and_drag_move_the_drawing(large: Server, visit: Opener) -> None:
    page = visit(f"{large.url}/cluster")
    wait_until_drawn(page, ACCELERATORS, 2 * ACCELERATORS)
    box = page.get_by_role("application").bounding_box()
    assert box is not None
    middle = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    page.mouse.move(*middle)
    page.keyboard.down("Control")
    for _ in range(3):
        page.mouse.wheel(0, -300)
    page.keyboard.up("Control")
    wait_until_drawn(page, 1, 3000)

    def under_the_pointer() -> str:
        return page.locator("[class*=detail]").inner_text()

    page.mouse.move(middle[0] + 1, middle[1])
    before = under_the_pointer()
    page.mouse.down()
    page.mouse.move(middle[0] - 300, middle[1] - 200, steps=5)
    page.mouse.up()
    page.mouse.move(middle[0] + 2, middle[1])
    expect(page.locator("[class*=detail]")).not_to_have_text(before)


def test_keys_lead_through_the_fabric_and_words_tell_where(large: Server, visit: Opener) -> None:
    page = visit(f"{large.url}/cluster")
    drawing = page.get_by_role("application", name="Fabric with 10,240 slots")
    drawing.focus()
    told = page.locator("[aria-live=polite]").filter(has_text="slots on")
    expect(told).to_contain_text("core c0: 5,120 slots on 640 nodes")
    page.keyboard.press("ArrowRight")
    expect(told).to_contain_text("core c1")
    page.keyboard.press("Enter")
    expect(told).to_contain_text("spine s4")
    page.keyboard.press("Escape")
    expect(told).to_contain_text("core c1: 5,120 slots")
    expect(page.get_by_role("heading", name="Inside the fabric")).to_be_visible()


def test_problems_and_jobs_are_told_where_they_are(large: Server, visit: Opener) -> None:
    page = visit(f"{large.url}/cluster?at=leaf:l1")
    expect(page.get_by_label("Problems")).to_contain_text("7 problems")
    page.get_by_role("application").focus()
    page.keyboard.press("ArrowRight")  # from gpu0016 to gpu0017
    detail = page.locator("[class*=detail]")
    expect(detail).to_contain_text("node gpu0017: leaf l1 declared, l2 reported; l1 counts")
    inside = page.get_by_role("region", name="Inside leaf l1")
    name = inside.get_by_role("link").first.inner_text()
    inside.get_by_role("link").first.click()
    expect(page).to_have_url(re.compile(large.ids[name]))


@pytest.mark.parametrize(
    "query", ["", pytest.param("?at=spine:s1", marks=pytest.mark.slow), "?at=node:gpu0096"]
)
def test_it_fits_and_is_accessible(
    query: str, large: Server, visit: Opener, findings: Callable[[Page], list[str]], tmp_path: Path
) -> None:
    wrong = []
    for scheme in ("light", "dark"):
        page = visit(f"{large.url}/cluster{query}", scheme=scheme)
        wait_until_drawn(page, 1, 2 * ACCELERATORS)
        for width in (1440, 390):
            page.set_viewport_size({"width": width, "height": 900})
            page.screenshot(path=tmp_path / f"{width}-{scheme}.png", full_page=True)
            scroll = page.evaluate("document.scrollingElement.scrollWidth")
            if scroll > width:
                wrong.append(f"{width} px, {scheme}: {scroll} px wide")
            wrong += [f"{width} px, {scheme}: {finding}" for finding in findings(page)]
    assert wrong == []
