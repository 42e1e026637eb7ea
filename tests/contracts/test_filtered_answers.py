"""An answer that the model provider's content filter ends: told in a sentence, stored so, not asked for again."""
# ruff: noqa: F811 (a fixture that is imported is then named by a parameter)

import json

import pytest

from db.database import connection, fetch
from services.events import FILTERED
from tests.contracts.shared_server import acme, alice, app, models, overrides, person  # noqa: F401
from tests.fakes import filtered

HALF, NOTHING = ("Some ", "text"), ()


def completion(alice, chat, session, headers=None, **more):
    stored = {"session_id": session["id"]} if session else {}
    asked = {"model": chat["id"], "messages": [{"role": "user", "content": "bad?"}]}
    return alice.at("POST", "/v1/chat/completions", asked | stored | more, headers=headers or {})


def frames(reply):
    return [json.loads(line[5:]) for line in reply.get_data(as_text=True).split("\n")
            if line.startswith("data:") and not line.endswith("[DONE]")]


@pytest.fixture(params=[HALF, NOTHING], ids=["some text", "no text"])
def text(request, model):
    model.script("bad?", lambda: filtered(*request.param))
    return "".join(request.param)


def stored(alice, chat, session):
    return alice.ok("GET", f"/chats/{chat['id']}/sessions/{session['id']}")["messages"][-1]


def is_told(entry, text):
    ending = (entry["finish_reason"], entry["error_code"], entry["error_message"])
    return (entry["content"], *ending) == (text, "error", "INVALID_REQUEST", FILTERED)


@pytest.mark.parametrize("stream", [True, False])
def test_ragflows_clients_read_a_sentence_and_the_turn_has_it_too(alice, chat, session, text, stream):
    body = {"question": "bad?", "session_id": session["id"], "stream": stream}
    reply = alice("POST", f"/chats/{chat['id']}/completions", body)
    last = frames(reply)[-1] if stream else reply.get_json()
    assert (reply.status_code, last["code"], last["message"]) == (200, 500 if stream else 102, FILTERED)
    assert (last["data"]["error_code"], last["data"]["answer"]) == ("INVALID_REQUEST", f"**ERROR**: {FILTERED}")
    assert is_told(stored(alice, chat, session), text)


def test_openais_clients_read_their_own_finish_reason_with_what_text_came(alice, chat, session, text):
    reply = completion(alice, chat, None)
    [choice] = reply.get_json()["choices"]
    assert (reply.status_code, choice["finish_reason"], choice["message"]["content"]) == (200, "content_filter", text)
    *chunks, last = (chunk["choices"][0] for chunk in frames(completion(alice, chat, session, stream=True)))
    assert "".join(chunk["delta"]["content"] for chunk in chunks) == text
    assert (last["finish_reason"], last["delta"]["content"]) == ("content_filter", None)
    assert is_told(stored(alice, chat, session), text)


def test_one_that_sends_the_question_again_reads_the_same_ending_and_the_model_is_not_asked(
    alice, chat, session, text, model
):
    def ask():
        [choice] = completion(alice, chat, session, headers={"Idempotency-Key": "once"}).get_json()["choices"]
        return choice["finish_reason"], choice["message"]["content"]

    first, asked = ask(), len(model.requests)
    with connection():
        fetch("DELETE FROM {run_event} WHERE run_id IN (SELECT id FROM {run} WHERE tenant_id = %s) RETURNING n",
              [alice.tenant_id])
    assert (first, ask(), len(model.requests)) == (("content_filter", text), first, asked)


def test_what_was_filtered_is_not_shown_to_the_model_again(alice, chat, session, text, model):
    completion(alice, chat, session)
    alice.ok("POST", f"/chats/{chat['id']}/completions", {
        "question": "good?", "session_id": session["id"], "stream": False})
    assert "bad?" not in str(model.requests[-1].messages)
