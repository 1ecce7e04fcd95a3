"""Token, unreachable API, a database without jobs."""

from __future__ import annotations

from collections.abc import Callable

from playwright.sync_api import Page, expect

from tests.web.conftest import TOKEN, Opener, Server


def test_a_token_is_asked_for_and_kept_in_the_tab(
    guarded: Server, visit: Opener, findings: Callable[[Page], list[str]]
) -> None:
    page = visit(f"{guarded.url}/jobs")
    dialog = page.get_by_role("dialog", name="This server asks for a token")
    field = dialog.get_by_label("Token", exact=True)
    field.fill("a-wrong-one")
    page.keyboard.press("Enter")
    expect(dialog.get_by_text("The server did not take the last token.")).to_be_visible()
    assert findings(page) == []
    field.fill(TOKEN)
    page.keyboard.press("Enter")
    expect(dialog).to_be_hidden()
    expect(page.get_by_text("No jobs yet")).to_be_visible()
    page.reload()
    expect(page.get_by_text("No jobs yet")).to_be_visible()
    assert page.evaluate("Object.values(sessionStorage)").count(TOKEN) == 1
    assert TOKEN not in page.evaluate("JSON.stringify(localStorage) + location.href + document.cookie")
    page.get_by_role("link", name="Cluster").click()
    expect(page.get_by_text("No node is known")).to_be_visible()
    expect(page.get_by_label("Problems")).to_contain_text("No controller has renewed its lease")
    assert findings(page) == []


def test_an_api_that_is_down_is_said_and_what_was_known_stays(
    seeded: Server, visit: Opener, findings: Callable[[Page], list[str]], cut_off: Callable[[Page], None]
) -> None:
    page = visit(f"{seeded.url}/jobs?state=queued")
    expect(page.get_by_role("link", name="pretrain-en")).to_be_visible()
    cut_off(page)
    expect(page.get_by_text("The Atoll API does not answer.")).to_be_visible()
    expect(page.get_by_role("link", name="pretrain-en")).to_be_visible()
    assert findings(page) == []
    # While it is still down: once it answers, the page finds that by itself and the button goes.
    with page.expect_request("**/api/v1/jobs*"):
        page.get_by_role("button", name="Try now").click()
    page.unroute_all()
    expect(page.get_by_text("The Atoll API does not answer.")).to_be_hidden()


def test_a_browser_that_thinks_it_is_offline_still_asks_a_server_on_its_machine(
    seeded: Server, visit: Opener
) -> None:
    page = visit(f"{seeded.url}/submit")
    page.get_by_role("link", name="Jobs", exact=True).wait_for()
    page.evaluate(
        "Object.defineProperty(navigator, 'onLine', {value: false}), dispatchEvent(new Event('offline'))"
    )
    page.get_by_role("button", name="Check plan").click()
    expect(page.get_by_text("It does not fit now.")).to_be_visible()
