"""The operator's models over the wire: listed without an address or a key, chosen by name or id, checked in order."""

from typing import Any

import pytest

from conf.settings import Settings
from db.database import connection
from db.models import Dialog
from services.models import DEFAULT, ModelDirectory, model_id
from tests.conftest import Person

KEY = "sk-secret-0123456789"
ADDRESS = "models.internal"
URL = f"http://{ADDRESS}/v1"
BUILT_IN = "BAAI/bge-reranker-v2-m3"


@pytest.fixture
def models(settings: Settings) -> ModelDirectory:
    """Two chat models, one that embeds, one that reranks; none of them is asked."""
    sections = {
        "model": {"base_url": URL, "name": "tiny", "api_key": KEY},
        "models": [{"name": "big", "base_url": URL, "model": "org/big-2", "api_key": KEY}],
        "embedding": {"base_url": URL, "name": "vectors", "api_key": KEY},
        "rerank": {"base_url": URL, "name": "judge", "api_key": KEY},
    }
    return ModelDirectory.of(Settings.model_validate(settings.model_dump(by_alias=True) | sections))


def listed(person: Person, query: str = "") -> list[str]:
    return [f"{row['model_type'][0]} {row['name']}" for row in person.ok("GET", f"/models{query}")]


def test_lists_every_model_or_those_of_one_type(alice: Person) -> None:
    assert listed(alice) == ["chat default", "chat big", "embedding vectors", "rerank judge"]
    assert listed(alice, "?type=chat") == ["chat default", "chat big"]
    assert listed(alice, "?type=rerank") == ["rerank judge"]
    assert alice.refused("GET", "/models?type=tts")[0] == 101


def test_a_model_is_listed_with_what_a_chat_can_be_given(alice: Person) -> None:
    for row in alice.ok("GET", "/models?type=chat"):
        made = alice.ok("POST", "/chats", {"name": row["name"], "llm_id": row["llm_id"]})
        assert (made["llm_id"], made["tenant_llm_id"]) == (row["llm_id"], row["tenant_llm_id"])
        assert (row["id"], row["available"]) == (row["tenant_llm_id"], True)


def test_the_default_of_each_type_is_told_in_ragflows_words(alice: Person) -> None:
    told = alice.ok("GET", "/users/me/models")
    assert (told["tenant_id"], told["name"], told["role"]) == (alice.tenant_id, "acme", "owner")
    assert [told[f"{word}_id"] for word in ("llm", "embd", "rerank", "asr", "tts", "img2txt")] == [
        DEFAULT, "vectors", "judge", "", "", "",
    ]
    assert (told["tenant_llm_id"], told["tenant_rerank_id"], told["tenant_asr_id"]) == (
        model_id(DEFAULT), model_id("judge"), None,
    )
    assert told["models"] == alice.ok("GET", "/models")


@pytest.mark.parametrize("path", ["/models", "/users/me/models"])
def test_no_address_and_no_key_is_told_and_nobody_is_told_anything(alice: Person, nobody: Person, path: str) -> None:
    text = alice("GET", path).get_data(as_text=True)
    assert ADDRESS not in text and KEY not in text
    assert nobody("GET", path).status_code == 401


@pytest.mark.parametrize(("by_name", "by_id", "name", "upstream", "other"), [
    ("llm_id", "tenant_llm_id", "big", "org/big-2", DEFAULT), ("rerank_id", "tenant_rerank_id", "judge", None, None),
])
@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH"])
def test_either_half_of_a_pair_says_the_model(
    alice: Person, method: str, by_name: str, by_id: str, name: str, upstream: str | None, other: str | None
) -> None:
    where = "/chats" if method == "POST" else f"/chats/{alice.ok('POST', '/chats', {'name': 'there'})['id']}"
    for n, (given, stored) in enumerate((
        ({by_name: name}, (name, model_id(name))),
        ({by_id: model_id(name)}, (model_id(name), model_id(name))),
        ({by_name: model_id(name)}, (model_id(name), model_id(name))),
        ({by_name: name, by_id: model_id(name)}, (name, model_id(name))),
        ({by_name: name, by_id: None}, (name, model_id(name))),
        ({by_name: upstream or name, by_id: model_id(name)}, (upstream or name, model_id(name))),
    )):
        chat = alice.ok(method, where, {"name": f"made {n}"} | given)
        assert (chat[by_name], chat[by_id]) == stored, given
    wrong = [
        ({by_name: 1}, f"`{by_name}` must be a string"), ({by_id: 1}, f"`{by_id}` must be a tenant model id"),
        ({by_name: 1, by_id: 1}, f"`{by_name}` must be a string"),
        ({by_name: "zz", by_id: "f" * 32}, f"`{by_name}` zz doesn't exist"),
        ({by_name: name, by_id: "f" * 32}, f"`{by_id}` must be a valid tenant model id"),
        ({by_id: name}, f"`{by_id}` must be a valid tenant model id"),
        ({by_name: "vectors"}, f"`{by_name}` vectors doesn't exist"),
        ({by_name: "x" * 200}, f"`{by_name}` {'x' * 200} doesn't exist"),
    ]
    if other:
        two = {by_name: name, by_id: model_id(other)}
        wrong.append((two, f"`{by_name}` and `{by_id}` must refer to the same model"))
    for given, text in wrong:
        assert alice.refused(method, where, {"name": "refused"} | given) == (102, text)


def test_the_llm_is_checked_before_the_reranker(alice: Person) -> None:
    body = {"name": "c", "llm_id": "zz", "rerank_id": "zz"}
    assert alice.refused("POST", "/chats", body) == (102, "`llm_id` zz doesn't exist")
    assert alice.refused("POST", "/chats", body | {"llm_id": "big"}) == (102, "`rerank_id` zz doesn't exist")


@pytest.mark.parametrize("rerank_id", [BUILT_IN, f"{BUILT_IN}@BAAI"])
def test_ragflows_built_in_rerankers_are_known_and_a_chat_can_be_sent_back(alice: Person, rerank_id: str) -> None:
    chat = alice.ok("POST", "/chats", {"name": "c", "rerank_id": rerank_id})
    pair = {key: chat[key] for key in ("rerank_id", "tenant_rerank_id")}
    assert pair == {"rerank_id": rerank_id, "tenant_rerank_id": model_id(rerank_id)}
    assert alice.ok("PUT", f"/chats/{chat['id']}", pair)["rerank_id"] == rerank_id
    assert alice.refused("PUT", f"/chats/{chat['id']}", {"rerank_id": f"{BUILT_IN}@{'x' * 200}"})[0] == 102


def test_an_empty_pair_is_the_default_model_and_no_reranker(alice: Person) -> None:
    chat = alice.ok("POST", "/chats", {"name": "c", "llm_id": "big", "rerank_id": "judge"})
    empty = {"llm_id": "", "tenant_llm_id": None, "rerank_id": "", "tenant_rerank_id": ""}
    changed = alice.ok("PATCH", f"/chats/{chat['id']}", empty)
    assert [changed[key] for key in empty] == [model_id(DEFAULT), model_id(DEFAULT), "", None]


def test_a_model_that_the_operator_took_away_is_named_in_the_refusal(alice: Person, chat: Any) -> None:
    with connection():
        Dialog.update(llm_id="gone").where(Dialog.id == chat["id"]).execute()
    body = {"question": "hello", "stream": False}
    assert alice.refused("POST", f"/chats/{chat['id']}/completions", body) == (102, "Cannot use specified model gone.")
