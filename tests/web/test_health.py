"""The health tab: what was found, the heat map by keyboard, what is shown of ten thousand ranks."""

from __future__ import annotations

from playwright.sync_api import expect

from tests.web.conftest import Opener, Server


def test_findings_are_listed_and_the_heat_map_is_read_by_keyboard(seeded: Server, visit: Opener) -> None:
    page = visit(f"{seeded.url}/jobs/{seeded.ids['running']}?tab=health")
    panel = page.get_by_role("tabpanel", name="Health")
    found = panel.get_by_role("list", name="What was found").get_by_role("listitem")
    expect(found).to_have_count(4)
    expect(found.nth(0)).to_contain_text("slow now")
    expect(found.nth(0)).to_contain_text(
        "Rank 5 on node n2 computes 1.31 times as long as its peers since step 60"
    )
    expect(found.nth(1)).to_contain_text("was slow")
    expect(found.nth(2)).to_contain_text("uneven work")
    drawing = panel.get_by_role("application", name="Computing of 8 ranks, steps 44 to 83")
    drawing.focus()  # the newest step of rank 0
    expect(panel.get_by_text("Rank 0 on n0, step 83: computes")).to_be_visible()
    for _ in range(5):
        page.keyboard.press("ArrowDown")
    cell = panel.get_by_text("Rank 5 on n2, step 83: computes")
    expect(cell).to_contain_text(" times its peers; waits 0 ms")
    ratio = float((cell.text_content() or "").split(", ")[2].split()[0])
    assert 1.25 < ratio < 1.37  # 1.31 with 2 % of noise on it and its peers
    page.keyboard.press("ArrowLeft")
    expect(panel.get_by_text("Rank 5 on n2, step 82: computes")).to_be_visible()


def test_waiting_is_shown_instead(seeded: Server, visit: Opener) -> None:
    page = visit(f"{seeded.url}/jobs/{seeded.ids['running']}?tab=health")
    page.get_by_text("waiting", exact=True).click()
    expect(page.get_by_role("application", name="Waiting of 8 ranks, steps 44 to 83")).to_be_visible()
    expect(page.get_by_text("no waiting")).to_be_visible()


def test_ten_thousand_ranks_share_rows(seeded: Server, visit: Opener) -> None:
    page = visit(f"{seeded.url}/jobs/{seeded.ids['giant']}?tab=health")
    expect(page.get_by_text("A row shows 10 ranks")).to_be_visible()
    drawing = page.get_by_role("application", name="Computing of 10,240 ranks")
    drawing.focus()
    expect(page.get_by_text("Ranks 0 to 9, step 5000: computes")).to_be_visible()
