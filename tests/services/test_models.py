"""The directory: a model is found by its name, its server's id for it, and the tenant's id of either."""

from typing import Any

import pytest

from conf.settings import load_settings
from services.models import DEFAULT, ModelDirectory, ModelType, model_id
from services.rag.chat_models import ExtractiveChatModel, OpenAIChatModel

URL = "http://127.0.0.1:9/v1"


def directory(**sections: Any) -> ModelDirectory:
    return ModelDirectory.of(load_settings(**sections))


SEVERAL = {
    "model": {"base_url": URL, "name": "tiny"},
    "models": [
        {"name": "big", "base_url": URL, "model": "org/big-2"},
        {"name": "bigger", "base_url": URL, "model": "org/big-2"},
        {"name": "org/other", "base_url": URL, "model": "plain"}, {"name": "plain", "base_url": URL},
    ],
    "embedding": {"base_url": URL, "name": "vectors"}, "rerank": {"base_url": URL, "name": "judge"},
}


@pytest.mark.parametrize(("key", "name"), [
    (DEFAULT, "default"), ("tiny", "default"), ("big", "big"), ("bigger", "bigger"), ("org/big-2", "big"),
    ("plain", "plain"), ("org/other", "org/other"), ("Big", None), ("zz", None), ("vectors", None), ("f" * 32, None),
])
def test_finds_a_chat_model_by_each_of_its_names(key: str, name: str | None) -> None:
    models = directory(**SEVERAL)
    for spelt in (key, model_id(key)):
        entry = models.chat.entry(spelt)
        assert (entry.name if entry else None) == name
        assert models.find(spelt) is (entry.model if entry else None)


def test_an_empty_name_is_the_default() -> None:
    models = directory(**SEVERAL)
    assert models.find("") is models.default is models.find(DEFAULT)
    assert isinstance(models.default, OpenAIChatModel)


def test_without_an_address_the_default_quotes_passages() -> None:
    models = directory(models=SEVERAL["models"])
    assert isinstance(models.find(DEFAULT), ExtractiveChatModel)
    assert isinstance(models.find("big"), OpenAIChatModel)


def test_finds_the_embedding_and_the_rerank_model() -> None:
    models = directory(**SEVERAL)
    embedding, rerank = models.find_embedding(), models.find_rerank("judge")
    assert embedding is not None and embedding.name == "vectors"
    assert models.find_embedding("vectors") is models.find_embedding(model_id("vectors")) is embedding
    assert rerank is not None and models.find_rerank(model_id("judge")) is rerank
    assert [models.find_embedding("tiny"), models.find_rerank("vectors"), models.find_rerank("")] == [None] * 3


def test_what_has_no_address_is_not_there() -> None:
    models = directory()
    assert [models.find_embedding(), models.find_embedding("vectors"), models.find_rerank("judge")] == [None] * 3
    assert [(type, entry.name) for type, entry in models] == [(ModelType.CHAT, DEFAULT)]


def test_lists_all_in_the_order_of_the_settings() -> None:
    assert [(type.value, entry.name) for type, entry in directory(**SEVERAL)] == [
        ("chat", "default"), ("chat", "big"), ("chat", "bigger"), ("chat", "org/other"), ("chat", "plain"),
        ("embedding", "vectors"), ("rerank", "judge"),
    ]


def test_the_servers_id_is_sent_upstream_where_it_differs_from_the_name() -> None:
    big, *_, plain = load_settings(**SEVERAL).models
    assert (big.upstream, plain.upstream) == ("org/big-2", "plain")
