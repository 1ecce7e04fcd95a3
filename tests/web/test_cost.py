"""What steps cost, on the job page: figures with units, bars that say whose they are, and a sentence where none is."""

from __future__ import annotations

from playwright.sync_api import expect

from tests.web.conftest import Opener, Server


def test_time_bytes_and_memory_of_a_step(seeded: Server, visit: Opener) -> None:
    page = visit(f"{seeded.url}/jobs/{seeded.ids['running']}?tab=cost")
    sent = page.get_by_role("table", name="Bytes sent in a step by axis")
    expect(sent.get_by_role("row")).to_have_count(3)
    # 592,512 of 855,680 bytes.
    expect(sent.get_by_role("row", name="tensor (tp)")).to_contain_text("579 KiB")
    expect(sent.get_by_role("row", name="tensor (tp)")).to_contain_text("69.2 %")
    time = page.get_by_role("table", name="Seconds of a step by phase")
    expect(time.get_by_role("row")).to_have_count(9)
    expect(time.get_by_role("row", name="backward")).to_contain_text("38 %")
    expect(time.get_by_role("row", name="waiting: pipeline (pp)")).to_contain_text("12 %")
    expect(page.get_by_text("unknown device")).to_be_visible()
    expect(page.get_by_text("280 MiB")).to_be_visible()
    expect(page.get_by_text("The model of this job has none.")).to_be_visible()


def test_loads_of_experts(seeded: Server, visit: Opener) -> None:
    page = visit(f"{seeded.url}/jobs/{seeded.ids['succeeded']}?tab=cost")
    expect(page.get_by_text("Assignments in step 120")).to_contain_text("4 layers between are not shown")
    layer = page.get_by_role("img", name="Layer 0, 16 experts")
    expect(layer.locator("title")).to_have_count(16)
    expect(layer.locator("title").nth(1)).to_have_text("expert 1: 237 assigned, 9 dropped")


def test_a_job_without_steps_says_so(seeded: Server, visit: Opener) -> None:
    page = visit(f"{seeded.url}/jobs/{seeded.ids['queued']}?tab=cost")
    expect(page.get_by_text("Figures appear with the first finished step.")).to_be_visible()
