"""Each parameter of a chat changes what it answers, or is answered with a warning."""
# ruff: noqa: F811 (a fixture that is imported is then named by a parameter)

from array import array

import pytest

from db.database import connection
from db.models import Dataset
from services.knowledge.documents import DocumentService
from services.knowledge.ingestion import add_text
from services.models import DEFAULT, ModelDirectory, ModelEntry
from services.principal import Principal
from tests.contracts.shared_server import acme, alice, app, person  # noqa: F401
from tests.fakes import ScriptedModel, says

TEXTS = {"sea.txt": "The sea is cold water.", "pump.txt": "A pump moves water.", "oil.txt": "Oil floats."}


class Meaning:
    """An embedding model to which oil means water."""

    name = "meaning"

    def embed(self, texts):
        return [array("f", [1.0 if "water" in text.lower() or "Oil" in text else 0.1, 0.5]) for text in texts]


class Oily:
    """A rerank model that likes oil, and nothing else much."""

    name = "oily"

    def scores(self, question, texts):
        return [0.9 if "Oil" in text else 0.2 for text in texts]


@pytest.fixture(scope="module")
def models():
    model = ScriptedModel()
    found = ModelDirectory(
        [ModelEntry(DEFAULT, model)], [ModelEntry("meaning", Meaning())], [ModelEntry("oily", Oily())]
    )
    found.default = model
    return found


@pytest.fixture(scope="module")
def overrides():
    return {}


@pytest.fixture
def dataset(alice):
    made = alice.ok("POST", "/datasets", {"name": "docs", "embedding_model": "meaning"})["id"]
    for name, text in TEXTS.items():
        add_text(Principal(alice.tenant_id), made, name, text, embedding=Meaning())
    return made


@pytest.fixture
def ask(alice, dataset, models):
    """The passages' documents and the prompt of a question about water, over a chat with these parameters."""

    def asked(question="water", request=(), history=(), **parameters):
        prompt = {"refine_multiturn": False, "empty_response": "Nothing."} | parameters.pop("prompt_config", {})
        chat = alice.ok("POST", "/chats", {
            "name": f"chat {len(models.default.requests)} {parameters}"[:200], "dataset_ids": [dataset],
            "similarity_threshold": 0, "prompt_config": prompt,
        } | parameters)
        session = alice.ok("POST", f"/chats/{chat['id']}/sessions")
        for earlier in history:
            alice.ok("POST", f"/chats/{chat['id']}/completions", {
                "session_id": session["id"], "question": earlier, "stream": False})
        answer = alice.ok("POST", f"/chats/{chat['id']}/completions", {
            "session_id": session["id"], "question": question, "stream": False, **dict(request)})
        names = [found["document_name"] for found in (answer["reference"] or {"chunks": []})["chunks"]]
        return names, answer["answer"]

    return asked


def test_top_n_is_how_many_passages_the_model_gets(ask):
    assert [len(ask(top_n=n)[0]) for n in (1, 2, 3)] == [1, 2, 3]


def test_similarity_threshold_keeps_passages_out_and_the_empty_response_answers(ask):
    assert ask("water zebra", similarity_threshold=0.99) == ([], "Nothing.")
    assert ask(question="water", similarity_threshold=0.5, vector_similarity_weight=0)[0] != []


def test_vector_similarity_weight_lets_meaning_count(ask):
    assert "oil.txt" not in ask(vector_similarity_weight=0)[0]
    assert "oil.txt" in ask(vector_similarity_weight=1)[0]


def test_top_k_is_how_many_are_compared(ask):
    assert len(ask(top_k=1, vector_similarity_weight=0)[0]) == 1


def test_rerank_id_orders_anew(ask):
    assert ask(rerank_id="oily", vector_similarity_weight=1)[0][0] == "oil.txt"
    assert ask(rerank_id="oily", vector_similarity_weight=1, similarity_threshold=0.5)[0] == ["oil.txt"]


FILTERS = (5, True, "x", [1], {"conditions": 5}, {"conditions": [{}]}, {"manual": "x"}, {"conditions": [5]},
           {"conditions": [{"name": "a", "comparison_operator": "like"}]})


@pytest.mark.parametrize("condition", FILTERS, ids=str)
def test_a_filter_that_is_none_is_refused_before_anything_is_stored(alice, chat, session, condition):
    path = f"/chats/{chat['id']}"
    for stream in (True, False):
        asked = {"question": "q", "session_id": session["id"], "metadata_condition": condition, "stream": stream}
        assert alice.refused("POST", f"{path}/completions", asked)[0] == 101
    assert len(alice.ok("GET", f"{path}/sessions/{session['id']}")["messages"]) == 1
    assert alice.refused("PUT", path, {"meta_data_filter": condition})[0] == 101


def test_meta_data_filter_chooses_documents(alice, ask, dataset):
    owner = Principal(alice.tenant_id)
    for row in DocumentService.all(owner, dataset):
        DocumentService.update(owner, dataset, row.id, {"meta_fields": {"kind": row.name[:3]}})
    rule = {"method": "manual", "manual": [{"key": "kind", "op": "=", "value": "SEA"}]}
    assert ask(meta_data_filter=rule)[0] == ["sea.txt"]
    assert ask(meta_data_filter={"method": "disabled"})[0] != ["sea.txt"]
    assert ask(meta_data_filter=rule | {"method": "disabled"})[0] != ["sea.txt"]


@pytest.mark.parametrize(("parameters", "request_"), [
    ({"prompt_config": {"quote": False}}, {}), ({"do_refer": "0"}, {}), ({}, {"quote": False}),
])
def test_quote_off_answers_without_references(ask, parameters, request_):
    assert ask(request=request_, **parameters)[0] == []


def test_system_knowledge_parameters_and_sampling_reach_the_model(ask, models):
    ask(prompt_config={"system": "{style}! {knowledge}", "parameters": [{"key": "knowledge"}, {"key": "style"}]},
        request={"style": "Be brief"}, llm_setting={"temperature": 0.7})
    request = models.default.requests[-1]
    system = request.messages[0]["content"]
    assert system.startswith("Be brief! ID: 0\nTitle: ")
    assert request.parameters["temperature"] == 0.7


def test_refine_multiturn_searches_with_a_question_that_stands_alone(ask, models):
    models.default.script("And what moves it?", lambda: says("What moves water? pump"))
    found, _ = ask("And what moves it?", prompt_config={"refine_multiturn": True}, history=["water"],
                   vector_similarity_weight=0, top_n=1)
    assert found == ["pump.txt"]
    assert len(models.default.requests[-2].messages) == 2
    assert "user: water" in models.default.requests[-2].messages[1]["content"]


@pytest.mark.parametrize(("parameters", "word"), [
    ({"prompt_config": {"tts": True}}, "tts"), ({"prompt_config": {"keyword": True}}, "keyword"),
    ({"prompt_config": {"reasoning": "1"}}, "reasoning"),
    ({"prompt_config": {"youcom_api_key": "x"}}, "youcom_api_key"),
    ({"prompt_config": {"web_search_provider": "tavily"}}, "web_search_provider"),
    ({"prompt_config": {"reference_metadata": {"include": True}}}, "reference_metadata"), ({"status": "0"}, "status"),
    ({"kb_ids": ["x"]}, "kb_ids"), ({"avatar": "data:"}, "avatar"), ({"llm": {"top_p": 1}}, "llm"),
    ({"prompt": {"prompt": "Hi"}}, "prompt"), ({"meta_data_filter": {"method": "auto"}}, "method"),
    ({"prompt_type": "advanced"}, "prompt_type"), ({"rerank_id": "BAAI/bge-reranker-v2-m3"}, "rerank_id"),
])
def test_what_has_no_effect_is_answered_with_a_warning(alice, parameters, word):
    made = alice.ok("POST", "/chats", {"name": word} | parameters)
    assert [word in told for told in made["warnings"]] == [True]
    changed = alice.ok("PATCH", f"/chats/{made['id']}", parameters)
    assert changed["warnings"] == made["warnings"]
    assert "warnings" not in alice.ok("GET", f"/chats/{made['id']}")


def test_a_chat_that_asks_for_vectors_that_are_not_there_is_told(alice):
    bare = alice.ok("POST", "/datasets", {"name": "bare"})["id"]
    add_text(Principal(alice.tenant_id), bare, "a.txt", "water")
    with connection():
        Dataset.update(embedding_model="").where(Dataset.id == bare).execute()
    made = alice.ok("POST", "/chats", {"name": "c", "dataset_ids": [bare], "vector_similarity_weight": 0.5})
    assert "a dataset has no embedding model" in made["warnings"][0]


def test_an_unknown_rerank_model_is_refused(alice):
    refused = alice.refused("POST", "/chats", {"name": "c", "rerank_id": "nope"})
    assert refused == (102, "`rerank_id` nope doesn't exist")


def test_a_rerank_model_of_ragflow_that_is_not_here_leaves_the_order_as_it_is(ask):
    assert ask(rerank_id="BAAI/bge-reranker-v2-m3") == ask(vector_similarity_weight=0.3)
