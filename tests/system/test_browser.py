"""The page in a real browser: what a person does with it, and that it never complains on the console."""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import requests
from playwright.sync_api import Browser, BrowserContext, Page, Route, expect, sync_playwright

from tests.processes import ModelServer, ServerProcess, wait_until
from tests.services.knowledge.documents import drawn

pytestmark = [pytest.mark.system, pytest.mark.timeout(120)]
WORDS = ["The pump ", "moves water [ID:0]. ", "It is blue."]
ANSWER = "The pump moves water 1. It is blue."  # a citation is shown as a number
SHOWN = "How do I connect to PostgreSQL?"
ROOMY = {"width": 1200, "height": 800}


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=arguments)
        yield browser
        browser.close()


@pytest.fixture
def context(browser: Browser) -> Iterator[BrowserContext]:
    """A browser of its own for each test. Whatever a page writes to the console as an error fails the test."""
    context = browser.new_context(viewport=ROOMY, color_scheme="light", locale="en-GB")
    context.set_default_timeout(15_000)
    wrong: list[str] = []
    context.on("console", lambda message: wrong.append(message.text) if message.type == "error" else None)
    context.on("weberror", lambda error: wrong.append(str(error.error)))
    yield context
    context.close()
    assert wrong == []


@pytest.fixture
def model() -> Iterator[ModelServer]:
    """Says three words, each when the test allows it."""
    model = ModelServer(WORDS)
    yield model
    model.close()


@pytest.fixture
def server(tmp_path: Path, model: ModelServer) -> Iterator[ServerProcess]:
    server = ServerProcess(tmp_path, CHATKEEP_MODEL_BASE_URL=model.base_url, CHATKEEP_MODEL_NAME="slow")
    yield server.start()
    server.stop()


@pytest.fixture
def page(server: ServerProcess, context: BrowserContext) -> Page:
    """The page, open on a chat over one PDF."""
    token = server.token()
    api = requests.Session()
    api.headers["Authorization"] = f"Bearer {token}"
    base = f"{server.base}/api/v1"
    dataset = api.post(f"{base}/datasets", json={"name": "manuals"}).json()["data"]["id"]
    manual = drawn([(72, 700, "A title page.")], [(72, 700, "A pump moves water. The pump is blue.")])
    documents = f"{base}/datasets/{dataset}/documents"
    kept = api.post(documents, files=[("file", ("pumps.pdf", manual))]).json()["data"]
    api.post(f"{base}/datasets/{dataset}/chunks", json={"document_ids": [kept[0]["id"]]})
    wait_until(lambda: api.get(documents).json()["data"]["docs"][0]["run"] == "DONE", 30)
    api.post(f"{base}/chats", json={"name": "Manuals", "dataset_ids": [dataset]})
    return opened(context, server, token)


def opened(context: BrowserContext, server: ServerProcess, token: str) -> Page:
    """The page once it has opened the last session."""
    page = context.new_page()
    page.goto(f"{server.base}/#token={token}", wait_until="networkidle")
    return page


def ask(page: Page, question: str) -> None:
    box(page).fill(question)
    box(page).press("Enter")


def box(page: Page) -> Any:
    return page.get_by_label("Your question")


def answer(page: Page) -> Any:
    return page.locator(".answer").last


def test_an_answer_shows_its_sources_the_passage_and_the_file(page: Page, model: ModelServer) -> None:
    model.allow(3)
    ask(page, "What does the pump do?")
    expect(answer(page).locator(".text").last).to_have_text(ANSWER)
    expect(answer(page).locator(".sources")).to_contain_text("pumps.pdf")
    answer(page).get_by_role("button", name="Source 1: pumps.pdf").click()
    passage = page.get_by_role("region", name="Quoted passage")
    expect(passage).to_contain_text("The pump is blue.")
    expect(passage).to_contain_text("page 2")
    with page.expect_popup() as tab:
        passage.get_by_role("button", name="Open the file").click()
    tab.value.wait_for_url(re.compile("^blob:.*#page=2$"))
    tab.value.close()
    passage.get_by_role("button", name="Close the passage").click()
    expect(passage).to_be_hidden()


def test_a_page_reloaded_in_mid_answer_joins_it(page: Page, model: ModelServer) -> None:
    ask(page, "What does the pump do?")
    model.allow(1)
    expect(answer(page)).to_contain_text("The pump")
    page.reload()
    expect(answer(page)).to_contain_text("The pump")
    expect(answer(page)).not_to_contain_text("It is blue.")
    model.allow(2)
    expect(answer(page).locator(".text").last).to_have_text(ANSWER)
    expect(page.locator(".question")).to_have_count(1)


@contextmanager
def held(page: Page) -> Iterator[None]:
    """What is asked about sessions meanwhile gets its answer afterwards."""
    waiting: list[Route] | None = []
    page.route("**/sessions**", lambda route: route.continue_() if waiting is None else waiting.append(route))
    with page.expect_request("**/sessions**"):
        yield
    before, waiting = waiting, None
    for route in before:
        route.continue_()


def test_a_question_asked_while_a_new_session_opens_goes_into_it(page: Page, model: ModelServer) -> None:
    model.allow(6)
    ask(page, "What does the pump do?")
    expect(answer(page).locator(".text").last).to_have_text(ANSWER)
    with held(page):
        page.get_by_role("button", name="New session").click()
        ask(page, "Is it blue?")
    expect(page.locator("#sessions li")).to_have_count(2)
    expect(answer(page).locator(".text").last).to_have_text(ANSWER)
    expect(page.locator(".question")).to_have_text(["You asked: Is it blue?"])


def test_a_question_asked_while_the_page_opens_goes_into_the_session_that_it_shows(
    page: Page, model: ModelServer
) -> None:
    model.allow(9)  # the second question is put into words of its own first
    ask(page, "What does the pump do?")
    expect(answer(page).locator(".text").last).to_have_text(ANSWER)
    with held(page):
        page.reload(wait_until="commit")
        ask(page, "Is it blue?")
    expect(page.locator(".question")).to_have_text(["You asked: What does the pump do?", "You asked: Is it blue?"])
    expect(answer(page).locator(".text").last).to_have_text(ANSWER)
    expect(page.locator("#sessions li")).to_have_count(1)


def test_a_question_that_comes_during_an_answer_waits_in_the_box_and_is_not_lost(
    page: Page, model: ModelServer
) -> None:
    ask(page, "What does the pump do?")
    model.allow(1)
    expect(answer(page)).to_contain_text("The pump")
    ask(page, "Is it blue?")
    expect(box(page)).to_have_value("Is it blue?")
    expect(page.get_by_text("Not sent yet")).to_be_visible()
    page.reload()
    expect(box(page)).to_have_value("Is it blue?")
    box(page).press("Enter")
    expect(page.get_by_text("Not sent yet")).to_be_visible()
    model.allow(6)  # what is left of the answer; the second question is put into words of its own first
    expect(answer(page).locator(".text").last).to_have_text(ANSWER)
    expect(page.get_by_text("Not sent yet")).to_be_hidden()
    box(page).press("Enter")
    expect(page.locator(".question")).to_have_text(["You asked: What does the pump do?", "You asked: Is it blue?"])
    model.allow(3)
    expect(answer(page).locator(".text").last).to_have_text(ANSWER)
    page.reload()
    expect(page.locator(".question")).to_have_count(2)
    expect(box(page)).to_have_value("")


def test_each_chat_keeps_what_is_typed_into_it(page: Page, server: ServerProcess) -> None:
    token = {"Authorization": f"Bearer {server.token()}"}
    requests.post(f"{server.base}/api/v1/chats", json={"name": "Other"}, headers=token).raise_for_status()
    page.reload(wait_until="networkidle")
    typed = {"Manuals": "About pumps", "Other": "About something else"}
    for chat, draft in typed.items():
        page.get_by_label("Chat", exact=True).select_option(chat)
        expect(box(page)).to_have_value("")
        box(page).fill(draft)
    for chat, draft in typed.items():
        page.get_by_label("Chat", exact=True).select_option(chat)
        expect(box(page)).to_have_value(draft)


def test_an_answer_is_stopped_and_stays_as_far_as_it_came(page: Page, model: ModelServer) -> None:
    ask(page, "What does the pump do?")
    model.allow(1)
    expect(answer(page)).to_contain_text("The pump")
    page.get_by_role("button", name="Stop the answer").click()
    expect(answer(page)).to_contain_text("You stopped this answer.")
    page.reload()
    expect(answer(page)).to_contain_text("The pump")
    expect(answer(page)).to_contain_text("Stopped: this answer is not complete.")


def test_an_answer_that_its_server_lost_was_stopped_by_nobody(
    page: Page, model: ModelServer, server: ServerProcess
) -> None:
    ask(page, "What does the pump do?")
    model.allow(1)
    expect(answer(page)).to_contain_text("The pump")
    page.goto("about:blank")
    server.kill()
    server.start()
    page.goto(server.base)
    expect(answer(page)).to_contain_text("Interrupted: this answer is not complete.")


def test_a_session_without_a_question_is_the_new_one(page: Page, model: ModelServer) -> None:
    new = page.get_by_role("button", name="New session", exact=True)
    for _ in range(3):
        new.click()
        expect(box(page)).to_be_focused()
    expect(page.locator("#sessions li")).to_have_count(1)
    model.allow(3)
    ask(page, "What does the pump do?")
    expect(answer(page).locator(".text").last).to_have_text(ANSWER)
    new.click(click_count=2)
    expect(box(page)).to_be_focused()
    expect(page.locator(".question")).to_have_count(0)
    expect(page.locator("#sessions li")).to_have_count(2)
    page.reload(wait_until="networkidle")
    new.click()
    expect(box(page)).to_be_focused()
    expect(page.locator("#sessions li")).to_have_count(2)


def test_lines_of_running_text_are_joined_and_those_of_code_and_tables_stay(page: Page, model: ModelServer) -> None:
    model.words = [
        "Run `chatkeep\n  migrate` once,\n   then the\n[guide](https://a.example).  \nA line broken on purpose.\n\n",
        "- An item\n  that goes on.\n\n", "A table:\n| a   | b |\n| --- | - |\n\n",
        "```\nfirst\n    second\n```\n\n", "    indented\n      code",
    ]
    model.allow(5)
    ask(page, "What does the pump do?")
    expect(page.locator(".question")).to_have_count(1)
    expect(answer(page).locator(".tools")).to_be_visible()
    lines, table, code = (block.inner_text() for block in answer(page).locator(".text p").all())
    assert lines == "Run chatkeep migrate once, then the guide.\nA line broken on purpose."
    assert answer(page).locator(".text p code").inner_text() == "chatkeep migrate"
    assert answer(page).locator("li").inner_text() == "An item that goes on."
    assert table == "A table:\n| a   | b |\n| --- | - |"
    assert answer(page).locator("pre").inner_text() == "first\n    second"
    assert code == "    indented\n      code"


def test_a_second_tab_shows_the_same_answer_and_may_stop_it(page: Page, model: ModelServer) -> None:
    ask(page, "What does the pump do?")
    model.allow(1)
    expect(answer(page)).to_contain_text("The pump")
    second = page.context.new_page()
    second.goto(page.url)
    expect(answer(second)).to_contain_text("The pump")
    model.allow(1)
    for tab in (page, second):
        expect(answer(tab)).to_contain_text("moves water")
    second.get_by_role("button", name="Stop the answer").click()
    expect(answer(second)).to_contain_text("You stopped this answer.")
    expect(answer(page)).to_contain_text("Stopped: this answer is not complete.")


def test_the_page_is_fit_to_be_shown(context: BrowserContext, tmp_path: Path) -> None:
    """The README's picture: `make screenshot` puts it there."""
    server = ServerProcess(tmp_path)
    server.run("demo")
    try:
        page = opened(context, server.start(), (tmp_path / "var" / "demo-token").read_text().strip())
        for question in ("How is the slot of a turn found?", "What happens if the database stalls?", SHOWN):
            page.get_by_role("button", name="New session", exact=True).click()
            expect(page.locator(".question")).to_have_count(0)
            expect(page.get_by_text("Hi! Ask me about Chatkeep.")).to_be_visible()
            ask(page, question)
            expect(answer(page).locator(".sources")).to_be_visible()
        answer(page).locator(".cite").first.click()
        expect(page.get_by_role("region", name="Quoted passage")).to_contain_text("PostgreSQL")
        page.mouse.move(0, 0)
        picture = Path(os.environ.get("SCREENSHOT", tmp_path / "page.png"))
        page.screenshot(path=picture)
        assert 20_000 < picture.stat().st_size < 200_000
    finally:
        server.stop()


def test_the_api_is_shown_with_every_route_and_found_by_words(context: BrowserContext, tmp_path: Path) -> None:
    server = ServerProcess(tmp_path, CHATKEEP_SERVER_BASE_PATH="/keep")
    server.start(f"{server.base}/keep/readyz")
    try:
        document = requests.get(f"{server.base}/keep/openapi.json").json()
        page = context.new_page()
        page.goto(f"{server.base}/keep/docs#completions_complete")
        expect(page.locator(".route")).to_have_count(sum(map(len, document["paths"].values())))
        expect(page.get_by_text(f"curl -X POST '{server.base}/keep/api/v1/chat/completions'")).to_be_visible()
        expect(page.locator(".route[open]").get_by_text("store_history_messages").first).to_be_visible()
        page.get_by_label("Search routes").fill("sessions delete")
        expect(page.locator(".route:visible")).to_have_count(3)
        expect(page.get_by_role("heading", name="Runs")).to_be_hidden()
    finally:
        server.stop()
