"""Questions that somebody may ask next: by a model, or by the headings near the question."""

from typing import Any

import pytest

from services.events import ErrorCode, ReasoningDelta, TextDelta
from services.knowledge.datasets import DatasetService
from services.knowledge.ingestion import add_text
from services.models import DEFAULT, ModelDirectory, ModelEntry
from services.principal import Principal
from services.rag.chat_models import ExtractiveChatModel
from tests.conftest import Person
from tests.contracts.wire import twin
from tests.fakes import ScriptedModel, ScriptedModels, fails, says

PATHS = ("/chat/recommendation", "/sessions/related_questions")
LINES = "".join(f"{n}. Question {n}?\n" for n in range(1, 12))
GUIDE = """# Guide

## Making a backup

Copy the file.

## Restoring a backup

Put the file back.

## Lunch

At noon.
"""


@pytest.fixture(params=PATHS)
def path(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_the_numbered_lines_of_the_model_are_the_questions(alice: Person, path: str, model: ScriptedModel) -> None:
    model.script("How?", lambda: says("Sure:\n", LINES[:30], LINES[30:]))
    assert alice.ok("POST", path, {"question": "How?"}) == [f"Question {n}?" for n in range(1, 11)]
    [request] = model.requests
    assert [message["role"] for message in request.messages] == ["system", "user"]
    assert request.messages[1]["content"] == "How?" and 0 < request.seconds <= 60


@pytest.mark.parametrize(("said", "questions"), [
    ("", []), ("No list.", []), ("1. A?\n2.\n3. a?\n4. How?\n5. B?", ["A?", "B?"]),
    ("<think>\n1. Not this?\n</think>\n1. This?", ["This?"]), ("<think>1. Never ends", []),
    ("**1. Bold?**\n 2) **Other** form?\n- 3. In a list?", ["Bold?", "Other form?", "In a list?"]),
    ("10. Ten?\n2026. A year?", ["Ten?"]), ("1. 备份在哪里？", ["备份在哪里？"]),
])
def test_what_is_no_new_question_is_left_out(
    alice: Person, model: ScriptedModel, said: str, questions: list[str]
) -> None:
    model.script("How?", lambda: iter([ReasoningDelta("1. Thought?"), *says(said)]))
    assert alice.ok("POST", PATHS[0], {"question": "How?"}) == questions


def test_a_model_that_babbles_is_cut_off(alice: Person, model: ScriptedModel) -> None:
    def endless() -> Any:
        yield TextDelta("1. First?\n")
        while True:
            yield TextDelta("x" * 100)

    model.script("How?", endless)
    assert alice.ok("POST", PATHS[0], {"question": "How?"}) == ["First?"]


@pytest.mark.parametrize("code", [ErrorCode.TIMEOUT, ErrorCode.RATE_LIMIT])
def test_a_model_failure_is_told_with_its_code(
    alice: Person, path: str, model: ScriptedModel, code: ErrorCode
) -> None:
    model.script("How?", lambda: fails("1. Half", code=code))
    answer = alice("POST", path, {"question": "How?"})
    assert answer.status_code == 200
    assert answer.get_json() == {"code": 102, "message": "The model failed.", "data": {"error_code": code}}


@pytest.mark.parametrize(("body", "code", "message"), [
    ({}, 101, "required argument are missing: question; "), (None, 101, "required argument are missing: question; "),
    ({"question": None}, 101, "`question` must be a text"), ({"question": ["How?"]}, 101, "`question` must be a text"),
    ({"question": "x" * 262_145}, 101, "`question` has 262145 bytes; at most 262144 are allowed"),
    ({"question": "How?", "chat_id": "unknown"}, 109, "no authorization"),
    ({"question": "How?", "chat_id": 1}, 101, "`chat_id` must be a text, not a number"),
    ({"question": "How?", "dataset_ids": "x"}, 101, '`dataset_ids` must be a list of ids, not "x"'),
], ids=lambda value: None if isinstance(value, int) else str(value)[:30])
def test_refuses_what_it_cannot_read(alice: Person, path: str, body: Any, code: int, message: str) -> None:
    assert alice.refused("POST", path, body) == (code, message)


def test_a_blank_question_asks_nobody(alice: Person, path: str, model: ScriptedModel) -> None:
    assert alice.ok("POST", path, {"question": "  "}) == []
    assert model.requests == []


def test_a_chat_and_what_ragflow_sends_besides_are_taken(alice: Person, path: str, chat: Any) -> None:
    body = {"question": "How?", "chat_id": chat["id"], "search_id": "s", "dataset_ids": [], "surprise": {"x": 1}}
    assert alice.ok("POST", path, body) == []


# -- the built-in model -------------------------------------------------------------------------


@pytest.fixture
def extractive(models: ScriptedModels) -> None:
    ModelDirectory.__init__(models, [ModelEntry(DEFAULT, ExtractiveChatModel())])


def add(person: Person, dataset: str, text: str) -> str:
    principal = Principal(str(person.tenant_id))
    made = DatasetService.ensure(principal, dataset)
    add_text(principal, made.id, f"{dataset}.md", text)
    return str(made.id)


@pytest.mark.usefixtures("extractive")
def test_without_a_model_the_headings_near_the_question_are_named(alice: Person, path: str) -> None:
    assert alice.ok("POST", path, {"question": "Where is the backup file?"}) == []
    add(alice, "guide", GUIDE)
    found = alice.ok("POST", path, {"question": "Where is the backup file?"})
    assert sorted(found) == ["Making a backup", "Restoring a backup"]
    assert alice.ok("POST", path, {"question": "restoring a backup"}) == ["Making a backup"]
    assert alice.ok("POST", path, {"question": "ocean"}) == []


@pytest.mark.usefixtures("extractive")
def test_only_the_callers_own_datasets_are_searched(alice: Person, charlie: Person, path: str) -> None:
    guide = add(alice, "guide", GUIDE)
    notes = add(alice, "notes", "# Notes\n\n## Our backup\n\nIt is big.")
    asked = {"question": "backup"}
    assert alice.ok("POST", path, asked | {"dataset_ids": [notes]}) == ["Our backup"]
    assert len(alice.ok("POST", path, asked | {"dataset_ids": [notes, guide, "unknown", 7]})) == 3
    assert charlie.ok("POST", path, asked | {"dataset_ids": [guide]}) == []
    assert charlie.ok("POST", path, asked) == []
    chat = alice.ok("POST", "/chats", {"name": "about notes", "dataset_ids": [notes]})
    assert twin(alice).ok("POST", path, asked | {"chat_id": chat["id"]}) == ["Our backup"]
    bare = alice.ok("POST", "/chats", {"name": "about nothing"})
    assert alice.ok("POST", path, asked | {"chat_id": bare["id"]}) == []
