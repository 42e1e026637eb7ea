"""OpenAI's chat API: its client, unmodified, over a socket; RAGFlow's paths of it byte by byte."""
# ruff: noqa: F811 (a fixture that is imported is then named by a parameter)

import http.client
import json
from functools import partial

import openai
import pytest

from db.database import connection, fetch
from services.errors import ModelFailure
from services.events import End, ErrorCode, FinishReason, ReasoningDelta, TextDelta, Usage
from services.knowledge.datasets import DatasetService
from services.knowledge.ingestion import add_text
from services.principal import Principal
from tests.contracts.shared_server import acme, alice, app, bob, charlie, models, person  # noqa: F401
from tests.contracts.wire import cited, later, read, runs, spoken, until
from tests.fakes import Gate, fails, says

pytestmark = pytest.mark.usefixtures("settled")

USER = {"role": "user", "content": "hello"}
BODY = {"model": "model", "messages": [USER]}
DETAILS = {"accepted_prediction_tokens": 0, "rejected_prediction_tokens": 0}


@pytest.fixture(scope="module")
def overrides():
    return {"stream": {"keep_alive": 0.05}, "limits": {"upload_bytes": 20_000, "message_bytes": 5_000}}


@pytest.fixture
def client_of(address):
    """OpenAI's client for a person, or with a key of the test's own."""
    opened = []

    def client(person, key=None, path="/v1", **more):
        url = f"http://{address[0]}:{address[1]}{path}"
        made = openai.OpenAI(base_url=url, api_key=key or person.token, **{"max_retries": 0} | more)
        opened.append(made)
        return made

    yield client
    for made in opened:
        made.close()


@pytest.fixture
def client(client_of, alice):
    return client_of(alice)


@pytest.fixture
def create(client, chat):
    """Ask Alice's chat as a model."""
    return partial(client.chat.completions.create, model=chat["id"])


def asks(text, **more):
    return {"messages": [{"role": "user", "content": text}]} | more


def in_session(session):
    return {"extra_body": {"session_id": session["id"]}}


def raw(person, body, path="/v1/chat/completions", **headers):
    return person.at("POST", path, body, headers=headers)


def completions(chat, name="openai"):
    return f"/api/v1/{name}/{chat['id']}/chat/completions"


def events(response):
    """The JSON of a stream's events; it ends with `[DONE]`, has no ids and nothing that isn't an event or a comment."""
    lines = [line for line in response.get_data(as_text=True).split("\n") if line and line != ": keep-alive"]
    assert lines.pop() == "data:[DONE]"
    assert all(line.startswith("data:{") for line in lines), lines
    return [json.loads(line.removeprefix("data:")) for line in lines]


def prompt(model):
    """What the model was asked last, as (role, text)."""
    return [(message["role"], message["content"]) for message in model.requests[-1].messages]


# -- OpenAI's client ------------------------------------------------------------------------------


def test_a_whole_answer(create, chat, model):
    model.script("whole?", lambda: says("one ", "two"))
    answer = create(**asks("whole?"))
    [choice] = answer.choices
    assert (choice.message.role, choice.message.content, choice.finish_reason) == ("assistant", "one two", "stop")
    assert (answer.object, answer.model, choice.message.reasoning_content) == ("chat.completion", chat["id"], None)
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens, answer.usage.total_tokens) == (3, 2, 5)
    assert answer.usage.completion_tokens_details.model_dump(include=DETAILS.keys()) == DETAILS


def test_two_answers_have_two_ids(create):
    assert create(**asks("hello")).id != create(**asks("hello")).id


def test_a_stream(create, chat, model):
    model.script("stream?", lambda: says("one ", "two"))
    chunks = list(create(**asks("stream?", stream=True, stream_options={"include_usage": True})))
    assert [chunk.choices[0].delta.content for chunk in chunks] == ["one ", "two", None]
    assert [chunk.choices[0].finish_reason for chunk in chunks] == [None, None, "stop"]
    assert [chunk.usage and chunk.usage.total_tokens for chunk in chunks] == [None, None, 5]
    assert len({(chunk.id, chunk.created, chunk.model, chunk.object) for chunk in chunks}) == 1


def test_the_clients_own_reading_of_a_stream_makes_the_whole_answer(client, chat, model):
    model.script("helper?", lambda: says("one ", "two"))
    with client.chat.completions.stream(
        model=chat["id"], **asks("helper?"), stream_options={"include_usage": True}
    ) as stream:
        final = stream.get_final_completion()
    message = final.choices[0].message
    assert (message.role, message.content, final.usage.total_tokens) == ("assistant", "one two", 5)


def test_an_answer_that_met_the_limit_says_so(create, model):
    model.script("long?", lambda: says("cut", finish=FinishReason.LENGTH))
    assert create(**asks("long?")).choices[0].finish_reason == "length"


def test_usage_is_estimated_where_the_model_tells_none(create, model):
    model.script("uncounted question?", lambda: iter([ReasoningDelta("thinking"), TextDelta("an answer"), End()]))
    usage = create(**asks("uncounted question?")).usage
    assert (usage.prompt_tokens, usage.completion_tokens, usage.total_tokens) == (5, 5, 10)
    assert usage.completion_tokens_details.reasoning_tokens == 2


THOUGHTS = {
    "told apart by the model": lambda: iter([ReasoningDelta("why "), ReasoningDelta("not"), TextDelta("yes")]),
    "written into the text": lambda: says("<think>why not</think>yes"),
    "cut anywhere": lambda: says(*"<think>why not</think>yes"),
    "in two parts": lambda: says("<th", "ink>why ", "</thi", "nk>\n", "<think>not</think>\n", "yes"),
}


@pytest.mark.parametrize("how", THOUGHTS)
def test_thinking_is_no_content(create, model, how):
    model.script(how, THOUGHTS[how])
    message = create(**asks(how)).choices[0].message
    assert (message.content, message.reasoning_content) == ("yes", "why not")
    deltas = [chunk.choices[0].delta for chunk in create(**asks(how, stream=True))]
    assert "".join(delta.content or "" for delta in deltas) == "yes"
    assert "".join(delta.reasoning_content or "" for delta in deltas) == "why not"


def test_an_answer_that_speaks_of_the_markers_is_content(create, model):
    said = "It reads a <think> tag,\n```\n<think>\nnot\n</think>\n```\nand what follows."
    model.script("tags?", lambda: says(*said))
    message = create(**asks("tags?")).choices[0].message
    assert (message.content, message.reasoning_content) == (said, None)


def test_what_only_begins_as_a_marker_is_content(create, model):
    model.script("less?", lambda: says("1 <", " 2 <thin"))
    assert create(**asks("less?")).choices[0].message.content == "1 < 2 <thin"


def test_every_chat_is_a_model_by_its_id_and_by_its_name(client, chat, alice, charlie):
    slashed = alice.ok("POST", "/chats", {"name": "a/b c"})
    charlie.ok("POST", "/chats", {"name": "Charlie's chat"})
    listed = client.models.list().data
    assert [model.id for model in listed] == [slashed["id"], chat["id"]]
    assert [model.name for model in listed] == ["a/b c", "Alice's chat"]
    assert client.models.retrieve(chat["id"]).created == chat["create_time"] // 1000
    assert client.models.retrieve("a/b c").id == client.models.retrieve("A/B C").id == slashed["id"]
    answer = client.chat.completions.create(model="Alice's chat", messages=[USER])
    assert answer.model == chat["id"]


def test_a_chats_id_goes_before_another_chats_name(client, chat, alice):
    other = alice.ok("POST", "/chats", {"name": chat["id"]})
    assert client.models.retrieve(chat["id"]).id == chat["id"] != other["id"]


def test_a_deleted_chat_is_no_model(client, chat, alice):
    alice.ok("DELETE", f"/chats/{chat['id']}")
    assert client.models.list().data == []
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve(chat["id"])


# -- errors as OpenAI's client raises them ---------------------------------------------------------


FAILURES = {
    ErrorCode.RATE_LIMIT: (openai.RateLimitError, 429, "rate_limit_error", "rate_limit_exceeded"),
    ErrorCode.CONTEXT_TOO_LONG: (openai.BadRequestError, 400, "invalid_request_error", "context_length_exceeded"),
    ErrorCode.INVALID_REQUEST: (openai.BadRequestError, 400, "invalid_request_error", "INVALID_REQUEST"),
    ErrorCode.MODEL_ERROR: (openai.InternalServerError, 502, "server_error", "MODEL_ERROR"),
    ErrorCode.TIMEOUT: (openai.InternalServerError, 504, "server_error", "TIMEOUT"),
    ErrorCode.SERVICE_UNAVAILABLE: (openai.InternalServerError, 503, "server_error", "SERVICE_UNAVAILABLE"),
    ErrorCode.INTERNAL_ERROR: (openai.InternalServerError, 500, "server_error", "INTERNAL_ERROR"),
}


@pytest.mark.parametrize("code", FAILURES)
def test_a_failed_answer_raises_what_its_cause_is(create, model, code):
    model.script(f"fail {code}", lambda: fails("half", code=code))
    kind, status, type, word = FAILURES[code]
    with pytest.raises(kind) as caught:
        create(**asks(f"fail {code}"))
    assert caught.value.status_code == status
    assert caught.value.body == {"message": "The model failed.", "type": type, "param": None, "code": word}
    assert "secret" not in caught.value.response.text


def test_a_stream_that_fails_raises_after_its_text(create, model):
    model.script("break?", lambda: fails("half", code=ErrorCode.RATE_LIMIT))
    said = []
    with pytest.raises(openai.APIError) as caught:
        for chunk in create(**asks("break?", stream=True)):
            said.append(chunk.choices[0].delta.content)
    assert (said, caught.value.message, caught.value.code) == (["half"], "The model failed.", "rate_limit_exceeded")


def test_an_error_is_a_streams_last_event(alice, chat, model):
    model.script("break raw?", lambda: fails("half"))
    text = raw(alice, asks("break raw?", model=chat["id"], stream=True)).get_data(as_text=True)
    *chunks, last = [json.loads(line.removeprefix("data:")) for line in text.split("\n") if line.startswith("data:")]
    assert [chunk["choices"][0]["delta"]["content"] for chunk in chunks] == ["half"]
    assert last == {"error": {
        "message": "The model failed.", "type": "server_error", "param": None, "code": "MODEL_ERROR",
    }}


@pytest.mark.parametrize("key", ["sk-unknown", "chatkeep-unknown"])
def test_a_wrong_key_is_an_authentication_error(client_of, alice, chat, key):
    client = client_of(alice, key=key)
    for call in (client.models.list, partial(client.chat.completions.create, model=chat["id"], messages=[USER])):
        with pytest.raises(openai.AuthenticationError) as caught:
            call()
        assert (caught.value.code, caught.value.type) == ("invalid_api_key", "invalid_request_error")
        assert "Bearer" in caught.value.body["message"]
    with pytest.raises(openai.AuthenticationError):
        client_of(alice, key=key, path=f"/api/v1/openai/{chat['id']}").models.list()


@pytest.mark.parametrize("model", ["model", "default", "", "gpt-4o", "other-model"])
def test_a_model_that_is_no_chat_is_not_found_and_none_is_guessed(client, chat, model):
    with pytest.raises(openai.NotFoundError) as caught:
        client.chat.completions.create(model=model, messages=[USER])
    assert (caught.value.code, caught.value.param) == ("model_not_found", "model")


WRONG_BODIES = {
    "no messages": {"messages": []},
    "not from the user": {"messages": [USER, {"role": "assistant", "content": "a"}]},
    "an unknown role": {"messages": [{"role": "wizard", "content": "a"}, USER]},
    "an item that is no object": {"messages": ["hello"]},
    "no role": {"messages": [{"content": "a"}, USER]},
    "content that is an object": {"messages": [{"role": "user", "content": {}}]},
    "too long a message": {"messages": [{"role": "user", "content": "x" * 5_001}]},
    "a temperature that is a text": {"temperature": "hot"},
    "a top_p that is a flag": {"top_p": True},
    "max_tokens that is a text": {"max_tokens": "many"},
    "max_completion_tokens that is a list": {"max_completion_tokens": [1]},
    "stream that is a text": {"stream": "maybe"},
    "an extra_body that is a text": {"extra_body": "x"},
    "a model that is a number": {"model": 1},
    "a session id that is a number": {"session_id": 1},
    "an unknown policy": {"on_conflict": "panic"},
    "a metadata condition that is a list": {"metadata_condition": ["x"]},
    "an integer beyond every database": {"seed": 2**70},
}


@pytest.mark.parametrize("wrong", WRONG_BODIES)
def test_a_faulty_body_is_a_bad_request(alice, chat, wrong):
    answer = raw(alice, BODY | {"model": chat["id"]} | WRONG_BODIES[wrong])
    error = answer.get_json()["error"]
    assert (answer.status_code, error["type"]) == (400, "invalid_request_error")
    assert set(error) == {"message", "type", "param", "code"} and len(error["message"]) > 10
    assert answer.get_json().keys() == {"error"}


@pytest.mark.parametrize("body", [b"{", b"[]", b"null", b'"text"', b"\xff"])
def test_a_body_that_is_no_object_is_a_bad_request(alice, body):
    headers = {"Authorization": f"Bearer {alice.token}"}
    answer = alice.client.post(
        "/v1/chat/completions", data=body, headers=headers, content_type="application/json"
    )
    assert answer.status_code == 400 and "AttributeError" not in answer.get_json()["error"]["message"]


@pytest.mark.parametrize(("method", "path", "status"), [
    ("GET", "/v1", 404), ("GET", "/v1/embeddings", 404), ("GET", "/v1/chat/completions", 405),
])
def test_paths_that_lead_nowhere_are_told_in_openais_words(alice, method, path, status):
    answer = alice.client.open(path, method=method)
    assert (answer.status_code, answer.get_json().keys()) == (status, {"error"})


def test_too_many_bytes_are_413_everywhere(alice, chat):
    body = BODY | {"model": chat["id"], "padding": "x" * 20_000}
    answer = raw(alice, body)
    assert (answer.status_code, answer.get_json()["error"]["code"]) == (413, "request_too_large")
    answer = raw(alice, body, completions(chat))
    both = answer.get_json()
    assert (answer.status_code, both["code"], both["error"]["code"]) == (413, 413, "request_too_large")
    assert both["message"] == both["error"]["message"] and both["data"] is None


def test_a_server_that_shuts_down_is_503(alice, chat, app):
    app.extensions["chatkeep"].workers.draining = True
    try:
        answer, enveloped = raw(alice, BODY | {"model": chat["id"]}), raw(alice, BODY, completions(chat))
    finally:
        app.extensions["chatkeep"].workers.draining = False
    assert (answer.status_code, answer.headers["Retry-After"]) == (503, "5")
    assert (answer.get_json()["error"]["type"], enveloped.get_json()["code"]) == ("server_error", 503)
    assert enveloped.get_json()["error"] == answer.get_json()["error"]


# -- stateless ------------------------------------------------------------------------------------


def test_nothing_is_stored_and_what_was_said_before_is_context(create, alice, chat, model):
    create(messages=[
        {"role": "system", "content": "Be brief."}, USER, {"role": "assistant", "content": "<think>hm</think>Hi!"},
        {"role": "developer", "content": "Be kind."}, {"role": "user", "content": "and then?"},
    ])
    system, *said = prompt(model)
    assert system[0] == "system" and system[1].endswith("Be brief.\n\nBe kind.")
    assert said == [("user", "hello"), ("assistant", "Hi!"), ("user", "and then?")]
    assert model.requests[-1].question == "and then?"
    assert alice.ok("GET", f"/chats/{chat['id']}/sessions") == []
    with connection():
        assert fetch("SELECT kind, conversation_id FROM {run} WHERE tenant_id = %s", [alice.tenant_id]) == [
            ("openai", None)
        ]


def test_what_a_user_said_in_several_messages_is_one(create, model):
    create(messages=[
        {"role": "user", "content": "a document"}, {"role": "system", "content": "s"},
        {"role": "user", "content": "a question"}, {"role": "assistant", "content": "an answer"},
        {"role": "user", "content": "more"}, {"role": "assistant", "content": None}, {"role": "user", "content": "now"},
    ])
    assert prompt(model)[1:] == [
        ("user", "a document\n\na question"), ("assistant", "an answer"), ("user", "more\n\nnow"),
    ]


def test_the_texts_of_parts_are_joined_and_images_left_out(create, model):
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    create(messages=[{"role": "user", "content": [
        {"type": "text", "text": "what is"}, image, {"type": "text", "text": "this?"}, {"type": "input_audio"},
    ]}])
    assert prompt(model)[-1] == ("user", "what is\nthis?")


def test_a_tools_calls_and_results_are_left_out_of_the_context(create, model):
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    create(messages=[
        USER, {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "42"}, {"role": "assistant", "content": "It is 42."},
        {"role": "user", "content": "sure?"},
    ])
    assert prompt(model)[1:] == [("user", "hello"), ("assistant", "It is 42."), ("user", "sure?")]


def test_sampling_goes_over_the_chats_own(create, alice, chat, model):
    alice.ok("PATCH", f"/chats/{chat['id']}", {"llm_setting": {"temperature": 0.1, "top_p": 0.5, "max_tokens": 9}})
    create(**asks("hello", temperature=0.9, top_p=None, max_completion_tokens=7, max_tokens=8, presence_penalty=1))
    assert model.requests[-1].parameters == {
        "temperature": 0.9, "top_p": 0.5, "max_tokens": 7, "presence_penalty": 1,
    }


def test_what_this_server_does_not_know_is_tolerated(create):
    answer = create(
        **asks("hello", user="somebody", seed=1, n=2, stop=["x"], logprobs=True, metadata={"a": "b"}),
        response_format={"type": "text"}, extra_body={"whatever": {"x": 1}}, extra_headers={"Idempotency-Key": "k"},
    )
    assert answer.choices[0].message.content == "You said: hello"


def test_other_keys_fill_the_chats_prompt(client, alice, model):
    parameters = [{"key": "style", "optional": False}, {"key": "metadata_condition", "optional": True},
                  {"key": "reference_metadata", "optional": True}]
    prompt_config = {"system": "{style} {metadata_condition} {reference_metadata}", "parameters": parameters}
    chat = alice.ok("POST", "/chats", {"name": "styled", "prompt_config": prompt_config})
    condition, shown = {"logic": "and", "conditions": []}, {"include": True, "fields": ["author"]}
    extra = {"style": "calm", "metadata_condition": condition, "reference_metadata": shown}
    client.chat.completions.create(model=chat["id"], messages=[USER], extra_body=extra)
    assert prompt(model)[0][1] == f"calm {json.dumps(condition, separators=(',', ':'))} " \
        + json.dumps(shown, separators=(",", ":"))
    with pytest.raises(openai.BadRequestError, match="style"):
        client.chat.completions.create(model=chat["id"], messages=[USER])


# -- with a session -------------------------------------------------------------------------------


def test_a_turn_is_stored_in_the_session_and_the_next_one_sees_it(create, alice, session, model):
    create(**asks("first"), **in_session(session))
    said = [*create(
        messages=[{"role": "system", "content": "mine"}, {"role": "user", "content": "invented"},
                  {"role": "assistant", "content": "too"}, {"role": "user", "content": "second"}],
        stream=True, **in_session(session),
    )]
    assert prompt(model)[1:] == [("user", "first"), ("assistant", "You said: first"), ("user", "second")]
    assert "mine" not in prompt(model)[0][1]
    assert said[-1].session_id == session["id"]
    assert spoken(alice, session)[1:] == [
        ("user", "first"), ("assistant", "You said: first"), ("user", "second"), ("assistant", "You said: second"),
    ]
    assert len(cited(read(alice, session))) == 2
    assert [run["kind"] for run in runs(alice, session)] == ["openai"] * 2


def test_a_failed_turn_is_stored_once_though_the_client_would_ask_again(client_of, alice, chat, session, model):
    model.script("fail stored?", lambda: fails("half", code=ErrorCode.RATE_LIMIT))
    client = client_of(alice, max_retries=3)
    with pytest.raises(openai.RateLimitError):
        client.chat.completions.create(model=chat["id"], **asks("fail stored?"), **in_session(session))
    assert spoken(alice, session)[1:] == [("user", "fail stored?"), ("assistant", "half")]


def test_one_key_is_one_turn(create, alice, session, model):
    model.script("think once", lambda: says("<think>why</think>", "yes"))
    again = partial(create, **asks("think once"), **in_session(session), extra_headers={"Idempotency-Key": "k1"})
    first, second = again(), again()
    assert first.id == second.id and len(spoken(alice, session)) == 3
    with connection():
        fetch("DELETE FROM {run_event} WHERE run_id IN (SELECT id FROM {run} WHERE tenant_id = %s) RETURNING n",
              [alice.tenant_id])
    assert again().choices[0].message.content == "yes"
    assert "".join(chunk.choices[0].delta.reasoning_content or "" for chunk in again(stream=True)) == "why"
    assert len(spoken(alice, session)) == 3


def test_a_busy_session_is_a_conflict(create, client_of, alice, chat, session, gate):
    first = later(lambda: create(**asks("slow?"), **in_session(session)))
    assert gate.reached.wait(10)
    body = {"extra_body": {"session_id": session["id"], "on_conflict": "reject"}}
    with pytest.raises(openai.ConflictError) as caught:
        create(**asks("next"), **body)
    assert caught.value.response.headers["Retry-After"] == "1"
    answer = raw(alice, asks("next", **BODY, **body["extra_body"]) | asks("next"), completions(chat))
    assert (answer.status_code, answer.get_json()["code"]) == (409, 409)
    assert answer.get_json()["error"]["message"] == answer.get_json()["message"]
    waiting = later(lambda: create(**asks("waits"), **in_session(session)))
    until(lambda: runs(alice, session, "queued"))
    gate.opened.set()
    assert first.result(20).choices[0].message.content == "halfdone"
    assert waiting.result(20).choices[0].message.content == "You said: waits"


def test_a_session_is_found_by_its_owner_in_its_chat_only(create, client_of, alice, charlie, chat, session):
    foreign_chat = charlie.ok("POST", "/chats", {"name": "Charlie's chat"})
    foreign = charlie.ok("POST", f"/chats/{foreign_chat['id']}/sessions", {"name": "s"})
    other_chat = alice.ok("POST", "/chats", {"name": "other"})
    other = alice.ok("POST", f"/chats/{other_chat['id']}/sessions", {"name": "s"})
    told = []
    for id in (foreign["id"], "5" * 32, other["id"]):
        with pytest.raises(openai.NotFoundError) as caught:
            create(**asks("hello", extra_body={"session_id": id}))
        told.append(caught.value.body["message"])
        answer = raw(alice, BODY | {"session_id": id}, completions(chat))
        assert (answer.status_code, answer.get_json()["code"], answer.get_json()["message"]) == (200, 102, told[-1])
    assert told == ["Session not found!", "Session not found!", "Session does not belong to this chat!"]


def test_a_reader_that_leaves_changes_nothing(address, alice, chat, session, model):
    gate = Gate("one ", "two ", after=("three",))
    model.script("leave?", gate)
    caller = http.client.HTTPConnection(*address, timeout=20)
    body = json.dumps(asks("leave?", model=chat["id"], stream=True, session_id=session["id"]))
    caller.request("POST", "/v1/chat/completions", body, {
        "Authorization": f"Bearer {alice.token}", "Content-Type": "application/json",
    })
    response = caller.getresponse()
    while b"two" not in response.readline():
        pass
    response.close()
    caller.close()
    gate.opened.set()
    until(lambda: runs(alice, session, "complete"))
    assert spoken(alice, session)[1:] == [("user", "leave?"), ("assistant", "one two three")]


def test_an_interrupted_answer_is_cut_short_not_whole(create, alice, session, gate):
    asked = later(lambda: create(**asks("slow?"), **in_session(session)))
    assert gate.reached.wait(10)
    [run] = until(lambda: runs(alice, session, "active"))
    alice.ok("POST", f"/runs/{run['id']}/cancel")
    [choice] = asked.result(20).choices
    assert (choice.message.content, choice.finish_reason) == ("half", "length")


# -- RAGFlow's paths --------------------------------------------------------------------------------


@pytest.fixture(params=["openai", "chats_openai"])
def path(request, chat):
    return completions(chat, request.param)


def test_a_plain_answer_is_the_default(alice, chat, path, model):
    model.script("plain?", lambda: says("one ", "two"))
    answer = raw(alice, BODY | asks("plain?"), path)
    whole = answer.get_json()
    assert answer.headers["X-Chatkeep-Run"]
    assert (whole["id"], whole["object"], whole["model"]) == (
        f"chatcmpl-{chat['id']}", "chat.completion", chat["llm_id"],
    )
    assert whole["choices"] == [{
        "index": 0, "finish_reason": "stop", "logprobs": None,
        "message": {"role": "assistant", "content": "one two", "reasoning_content": None},
    }]
    assert whole["usage"] == {
        "prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5,
        "completion_tokens_details": DETAILS | {"reasoning_tokens": 0},
    }


def test_a_stream_speaks_ragflows_chunks(alice, chat, path, model):
    said = [ReasoningDelta("w"), TextDelta("Hel"), TextDelta("lo"), End(usage=Usage(3, 2))]
    model.script("chunks?", lambda: iter(said))
    response = raw(alice, BODY | asks("chunks?", stream=True), path)
    assert response.headers["Content-Type"] == "text/event-stream; charset=utf-8"
    chunks = events(response)
    nothing = dict.fromkeys(["content", "function_call", "tool_calls", "reasoning_content"]) | {"role": "assistant"}
    assert [chunk["choices"] for chunk in chunks] == [
        [{"delta": nothing | delta, "finish_reason": finish, "index": 0, "logprobs": None}]
        for delta, finish in (
            ({"reasoning_content": "w"}, None), ({"content": "Hel"}, None), ({"content": "lo"}, None), ({}, "stop"),
        )
    ]
    named = {"id": f"chatcmpl-{chat['id']}", "model": chat["llm_id"], "object": "chat.completion.chunk",
             "system_fingerprint": "", "created": chunks[0]["created"]}
    assert all(chunk | named == chunk for chunk in chunks)
    assert [chunk["usage"] and chunk["usage"]["total_tokens"] for chunk in chunks] == [None, None, None, 5]


def test_silence_is_filled_with_comments_that_are_no_events(create, alice, chat, gate):
    asked = later(lambda: raw(alice, BODY | asks("slow?", stream=True), completions(chat)).get_data(as_text=True))
    read_by_client = later(lambda: list(create(**asks("slow?", stream=True))))
    assert gate.reached.wait(10)
    gate.opened.wait(0.3)
    gate.opened.set()
    text = asked.result(20)
    assert ": keep-alive\n" in text and ": keep-alive\n\n" not in text and "\nid:" not in text
    assert "".join(chunk.choices[0].delta.content or "" for chunk in read_by_client.result(20)) == "halfdone"


REFERENCES = {
    "nested": {"extra_body": {"reference": True}}, "beside the others": {"reference": True},
    "a text": {"reference": "true"}, "nested goes first": {"extra_body": {"reference": True}, "reference": False},
}


@pytest.mark.parametrize("how", REFERENCES)
def test_passages_come_where_they_are_wanted(alice, path, model, how):
    model.script("cite?", lambda: says("cited", chunks=("a", "b")))
    message = raw(alice, BODY | asks("cite?") | REFERENCES[how], path).get_json()["choices"][0]["message"]
    assert [chunk["id"] for chunk in message["reference"]] == ["a", "b"]
    last = events(raw(alice, BODY | asks("cite?", stream=True) | REFERENCES[how], path))[-1]["choices"][0]["delta"]
    assert ([chunk["id"] for chunk in last["reference"]], last["final_content"]) == (["a", "b"], "cited")
    assert model.requests[-1].quote is True


def test_passages_and_citations_stay_away_where_they_are_not_wanted(alice, path, model):
    model.script("cite?", lambda: says("cited", chunks=("a",)))
    assert "reference" not in raw(alice, BODY | asks("cite?"), path).get_json()["choices"][0]["message"]
    assert "reference" not in events(raw(alice, BODY | asks("cite?", stream=True), path))[-1]["choices"][0]["delta"]
    assert model.requests[-1].quote is False
    raw(alice, BODY | asks("cite?", quote=True), path)
    assert model.requests[-1].quote is True


def test_a_metadata_condition_narrows_what_is_found(alice):
    owner = Principal(alice.tenant_id)
    dataset = DatasetService.ensure(owner, "letters")
    add_text(owner, dataset.id, "a.md", "The harbour master counts ships.", location="a.md")
    prompt_config = {"empty_response": "Nothing there.", "system": "{knowledge}"}
    chat = alice.ok("POST", "/chats", {
        "name": "letters", "dataset_ids": [dataset.id], "prompt_config": prompt_config, "similarity_threshold": 0,
    })
    body = asks("Who counts ships?", model="model", reference=True)
    condition = {"conditions": [{"name": "author", "comparison_operator": "is", "value": "nobody"}]}
    for more, found in (({}, 1), ({"extra_body": {"metadata_condition": condition}}, 0)):
        message = raw(alice, body | more, completions(chat)).get_json()["choices"][0]["message"]
        assert len(message["reference"]) == found
        assert (message["content"] == "Nothing there.") is not bool(found)


def test_a_reference_without_passages_is_an_empty_list(alice, path):
    message = raw(alice, BODY | {"reference": True}, path).get_json()["choices"][0]["message"]
    assert message["reference"] == []


MODELS = {
    "the placeholder": ("model", "{llm_id}"), "the chat's id": ("{id}", "{llm_id}"),
    "the chat's name": ("Alice's chat", "{llm_id}"), "another model": ("other-model", "other-model"),
}


@pytest.mark.parametrize("named", MODELS)
def test_an_answer_names_the_model_that_gave_it(alice, chat, path, named):
    wanted, echoed = (text.format(**chat) for text in MODELS[named])
    assert raw(alice, BODY | {"model": wanted}, path).get_json()["model"] == echoed


def test_a_chats_path_is_a_base_url_with_one_model(client_of, alice, chat):
    client = client_of(alice, path=f"/api/v1/openai/{chat['id']}")
    [model] = client.models.list().data
    assert client.chat.completions.create(model=model.id, messages=[USER]).choices[0].message.content


ANY_CHAT = {
    "extra_body": ({"extra_body": "invalid"}, 102, "extra_body must be an object."),
    "reference_metadata": ({"extra_body": {"reference_metadata": "invalid"}}, 102,
                           "reference_metadata must be an object."),
    "fields": ({"extra_body": {"reference_metadata": {"fields": "author"}}}, 102,
               "reference_metadata.fields must be an array."),
    "flat fields": ({"reference_metadata": {"fields": "author"}}, 102, "reference_metadata.fields must be an array."),
    "no messages": ({"messages": []}, 102, "You have to provide messages."),
    "last one": ({"messages": [USER, {"role": "assistant", "content": "x"}]}, 102,
                 "The last content of this conversation is not from user."),
    "an object": ({"messages": {}}, 102, "messages must be an array."),
    "null": ({"messages": None}, 102, "messages must be an array."),
    "an item": ({"messages": ["x", USER]}, 102, "Each message must be an object."),
    "content": ({"messages": [{"role": "user", "content": 1}]}, 102,
                "messages[].content must be a string or an array of content parts."),
    "no role": ({"messages": [{"content": "x"}, USER]}, 101,
                'each message needs a `role`; it is missing in {"content": "x"}'),
    "temperature": ({"temperature": "hot"}, 101, '`temperature` must be a number, not "hot"'),
    "stream": ({"stream": "maybe"}, 101, '`stream` must be true or false, not "maybe"'),
}
KNOWN_CHAT = {
    "metadata_condition": ({"extra_body": {"metadata_condition": "invalid"}}, 102,
                           "metadata_condition must be an object."),
    "conditions": ({"metadata_condition": {"conditions": "x"}}, 101,
                   "the conditions of a metadata filter must be a list"),
    "unknown model": ({"model": "zz"}, 101, "`llm_id` zz doesn't exist"),
    "empty model": ({"model": ""}, 102, "Cannot use specified model ."),
    "null model": ({"model": None}, 102, "Cannot use specified model ."),
}


@pytest.mark.parametrize("wrong", ANY_CHAT)
def test_a_fault_is_told_before_the_chat_is_looked_at(alice, path, chat, wrong):
    body, code, message = ANY_CHAT[wrong]
    for where in (path, path.replace(chat["id"], "c" * 32)):
        answer = raw(alice, BODY | body, where)
        assert answer.status_code == 200
        assert answer.get_json() == {"code": code, "message": message, "data": None}


@pytest.mark.parametrize("wrong", KNOWN_CHAT)
def test_an_unknown_chat_is_told_before_the_rest(alice, path, chat, wrong):
    body, code, message = KNOWN_CHAT[wrong]
    assert raw(alice, BODY | body, path).get_json() == {"code": code, "message": message, "data": None}
    answer = raw(alice, BODY | body, path.replace(chat["id"], "c" * 32))
    assert (answer.status_code, answer.get_json()) == (
        200, {"code": 102, "message": f"You don't own the chat {'c' * 32}", "data": None},
    )


@pytest.mark.parametrize(("body", "missing"), [
    ({"messages": [USER]}, "model"), ({"model": "model"}, "messages"), ({}, "model,messages"),
])
def test_model_and_messages_are_required(alice, path, body, missing):
    answer = raw(alice, body, path)
    assert (answer.status_code, answer.get_json()["code"]) == (200, 101)
    assert answer.get_json()["message"] == f"required argument are missing: {missing}; "


def test_a_falsy_extra_body_is_none(alice, path):
    for nothing in (None, "", 0, [], {}):
        assert raw(alice, BODY | {"extra_body": nothing}, path).get_json()["choices"]


def test_a_failed_answer_has_its_status_and_both_envelopes(alice, path, model):
    def busy():
        raise ModelFailure(ErrorCode.RATE_LIMIT, "Too many.")
        yield

    model.script("busy?", busy)
    answer = raw(alice, BODY | asks("busy?"), path)
    error = {"message": "Too many.", "type": "rate_limit_error", "param": None, "code": "rate_limit_exceeded"}
    assert (answer.status_code, answer.get_json()) == (
        429, {"code": 429, "message": "Too many.", "data": None, "error": error},
    )
