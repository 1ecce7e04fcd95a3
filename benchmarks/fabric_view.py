"""How smooth the fabric explorer is with 10,240 accelerators: `python benchmarks/fabric_view.py`.

A real API process on a database with that fabric and the jobs on it, a real browser without a graphics card. The
pointer drags the drawing of the whole fabric, of a spine and of a leaf, then the wheel zooms in and out. Measured are
the times between frames and what a frame costs the page's main thread (Chromium's `TaskDuration`, which holds script,
layout and paint commands). The value is the most costly view's main-thread time a frame, divided by the 16.7 ms of a
screen with 60 Hz: at most 1.0 passes.
"""

from __future__ import annotations

import argparse
import itertools
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from job_list import ROOT, server
from playwright.sync_api import CDPSession, Page, sync_playwright
from report import Verdict, conclude

FRAME_MS = 1000 / 60
VIEWS = {"whole fabric": "", "spine": "?at=spine:s2", "leaf": "?at=leaf:l25"}
SCREEN = {"width": 1440, "height": 900}
ACCELERATORS = 10_240

_RECORD = """() => {
  window.frames_at = [];
  const note = (at) => { window.frames_at.push(at); window.noting = requestAnimationFrame(note); };
  window.noting = requestAnimationFrame(note);
}"""
_TAKE = "() => { cancelAnimationFrame(window.noting); return window.frames_at; }"


def fill(url: str) -> None:
    script = ROOT / "tests" / "web" / "large_store.py"
    environment = {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"}
    subprocess.run([sys.executable, str(script), url], check=True, stdout=subprocess.DEVNULL, env=environment)


def drag(page: Page, moves: int) -> None:
    """Up and down and to the sides, as a hand does; the drawing follows where it has room to."""
    page.mouse.down()
    x, y = SCREEN["width"] / 2, 600.0
    for move in range(moves):
        x += 9 if move // 20 % 2 else -9
        y += 4 if move // 10 % 2 else -4
        page.mouse.move(x, y)
    page.mouse.up()


def zoom(page: Page, moves: int) -> None:
    for move in range(moves):
        page.mouse.wheel(0, -120 if move // 20 % 2 == 0 else 120)


def measure(page: Page, chrome: CDPSession, act: Callable[[Page, int], None], moves: int) -> dict[str, Any]:
    """Milliseconds between frames, and of main thread a frame, while `act` is under way."""
    before = _task_seconds(chrome)
    page.evaluate(_RECORD)
    act(page, moves)
    frames: list[float] = page.evaluate(_TAKE)
    spent = _task_seconds(chrome) - before
    between = [round(b - a, 2) for a, b in itertools.pairwise(frames)]
    return {
        "drawn": int(page.locator("canvas").first.get_attribute("data-drawn") or 0),
        "frames": len(between),
        "main_thread_ms_a_frame": round(1000 * spent / max(1, len(between)), 2),
        "frame_ms": between,
    }


def _task_seconds(chrome: CDPSession) -> float:
    metrics = {each["name"]: each["value"] for each in chrome.send("Performance.getMetrics")["metrics"]}
    return float(metrics["TaskDuration"])


def look(address: str, moves: int) -> dict[str, dict[str, Any]]:
    program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if program is None:
        raise SystemExit("no Chromium on this machine: .ci/test-tools installs it")
    found: dict[str, dict[str, Any]] = {}
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page(viewport=SCREEN)
        chrome = page.context.new_cdp_session(page)
        chrome.send("Performance.enable")
        for view, query in VIEWS.items():
            page.goto(f"{address}/cluster{query}")
            canvas = page.locator("canvas[data-drawn]")
            canvas.scroll_into_view_if_needed()
            box = canvas.bounding_box()
            assert box is not None
            page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
            if view == "whole fabric":
                page.get_by_role("button", name="Zoom in").click()  # so that there is something to drag
            page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
            drag(page, moves // 4)  # warm-up
            found[f"{view}, dragged"] = measure(page, chrome, drag, moves)
        page.goto(f"{address}/cluster")
        page.locator("canvas[data-drawn]").click()
        found["whole fabric, zoomed"] = measure(page, chrome, zoom, moves)
        browser.close()
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--moves", type=int, default=240, help="movements of the pointer a view")
    chosen = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="atoll-fabric-view-"))
    try:
        url = f"sqlite:///{folder / 'atoll.db'}"
        fill(url)
        with server(url) as address:
            samples = look(address, chosen.moves)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    for view, one in samples.items():
        frames = sorted(one["frame_ms"])
        p95 = statistics.quantiles(frames, n=20, method="inclusive")[-1]
        print(
            f"{view:24} {one['drawn']:6,} drawn  main thread {one['main_thread_ms_a_frame']:5.1f} ms a frame  "
            f"between frames p50 {statistics.median(frames):5.1f} ms, p95 {p95:5.1f} ms",
            flush=True,
        )
    worst = max(one["main_thread_ms_a_frame"] for one in samples.values())
    verdict = Verdict("fabric_view", "ratio", worst / FRAME_MS, 1.0, at_least=False)
    setting = {"accelerators": ACCELERATORS, "moves": chosen.moves, "screen": SCREEN, "views": VIEWS}
    return conclude(verdict, setting=setting, samples=samples)


if __name__ == "__main__":
    raise SystemExit(main())
