"""Every page, wide and narrow, light and dark: fits, reads, has a title and no serious accessibility finding."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.web.conftest import PATIENCE_MS, Opener, Server

PAGES = {
    "jobs": ("/jobs", "text=sweep-09999", "Jobs"),
    "jobs-none": ("/jobs?name=zzz", "text=No job matches", "Jobs"),
    "jobs-failed": ("/jobs?state=failed", "text=finetune-instruct", "Jobs, failed"),
    "running": ("/jobs/{running}", "text=certified >> nth=0", "demo · running"),
    "running-logs": ("/jobs/{running}?tab=logs&attempt=1", "text=400 lines shown", "demo · running"),
    "running-no-log": ("/jobs/{running}?tab=logs", "text=The log cannot be read now", "demo · running"),
    "checkpoints": ("/jobs/{running}?tab=checkpoints", "text=pruned", "demo · running"),
    "attempts": ("/jobs/{running}?tab=attempts", "text=under way", "demo · running"),
    "cost": ("/jobs/{succeeded}?tab=cost", "text=Layer 3", "wiki-small · succeeded"),
    "cost-none": ("/jobs/{queued}?tab=cost", "text=Figures appear with", "pretrain-en · queued"),
    "health": ("/jobs/{running}?tab=health", "text=slow now", "demo · running"),
    "health-none": ("/jobs/{queued}?tab=health", "text=Nothing is known yet", "pretrain-en · queued"),
    "health-giant": ("/jobs/{giant}?tab=health", "text=A row shows 10 ranks", "giant · succeeded"),
    "goodput": ("/jobs/{running}?tab=goodput", "text=Lost work >> nth=0", "demo · running"),
    "goodput-none": ("/jobs/{queued}?tab=goodput", "text=Nothing has broken", "pretrain-en · queued"),
    "spec": ("/jobs/{running}?tab=spec", "text=Start a new job from this file", "demo · running"),
    "succeeded": ("/jobs/{succeeded}", "text=Held-back loss >> nth=0", "wiki-small · succeeded"),
    "queued": ("/jobs/{queued}", "text=Not placed", "pretrain-en · queued"),
    "never": ("/jobs/{never}", "text=No leaf has 16 slots >> nth=0", "llama-405b · queued"),
    "recovering": ("/jobs/{recovering}", "text=signal 9 >> nth=0", "long-context · recovering"),
    "giant": ("/jobs/{giant}", "text=stage 15", "giant · succeeded"),
    "queue": ("/queue", "text=vision-tuner", "Queue"),
    "cluster": ("/cluster", "text=Node n4 is lost", "Cluster"),
    "cluster-leaf": ("/cluster?at=leaf:l1", "text=Inside leaf l1", "Cluster"),
    "plan": ("/plan", "text=Not compared yet", "Compare plans"),
    "submit": ("/submit", "text=Not checked yet", "Submit a job"),
    "not-found": ("/nowhere", "text=There is no such page", "Not found"),
    "no-job": ("/jobs/01a22e97-0000-7000-8000-000000000000", "text=There is no such job", "Job"),
}
PAGES["failed"] = (
    "/jobs/{failed}",
    "text=Traceback",
    "finetune-instruct-with-a-name-as-long-as-a-name-may-ever-be-63 · failed",
)


@pytest.mark.parametrize("name", PAGES)
@pytest.mark.timeout(600)
def test_page_fits_and_is_accessible(
    name: str, seeded: Server, visit: Opener, findings: Callable[[Page], list[str]], tmp_path: Path
) -> None:
    path, sign, title = PAGES[name]
    url = seeded.url + path.format(**seeded.ids)
    wrong = []
    for scheme in ("light", "dark"):
        page = visit(url, scheme=scheme)
        page.wait_for_selector(sign)
        expect(page).to_have_title(f"{title} · Atoll")
        for width in (1440, 390) if scheme == "light" else (390,):
            page.set_viewport_size({"width": width, "height": 900})
            page.screenshot(path=tmp_path / f"{name}-{width}-{scheme}.png", full_page=True)
            scroll = page.evaluate("document.scrollingElement.scrollWidth")
            if scroll > width:
                wrong.append(f"{width} px, {scheme}: {scroll} px wide")
            wrong += [f"{width} px, {scheme}: {finding}" for finding in findings(page)]
    assert wrong == []


PAGES_OF_THE_BAR = (
    ("Queue", "Queue"),
    ("Cluster", "Cluster"),
    ("Plan", "Compare plans"),
    ("Submit", "Submit a job"),
    ("Jobs", "Jobs"),
)


def test_every_page_is_reached_by_keyboard(seeded: Server, visit: Opener) -> None:
    page = visit(f"{seeded.url}/jobs")
    page.wait_for_selector("text=sweep-09999")
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to content")).to_be_focused()
    for link, heading in PAGES_OF_THE_BAR:
        page.get_by_role("navigation", name="Main").get_by_role("link", name=link).focus()
        page.keyboard.press("Enter")
        expect(page.get_by_role("heading", level=1)).to_have_text(heading)
        expect(page.locator("main")).to_be_focused()


def test_colours_can_be_switched_and_are_kept(seeded: Server, visit: Opener) -> None:
    page = visit(f"{seeded.url}/cluster", scheme="light")
    root = page.locator("html")
    expect(root).to_have_attribute("data-mantine-color-scheme", "light")
    switch = page.get_by_role("button", name="Colours")
    switch.click()
    switch.click()
    expect(root).to_have_attribute("data-mantine-color-scheme", "dark")
    page.reload()
    expect(root).to_have_attribute("data-mantine-color-scheme", "dark", timeout=PATIENCE_MS)
