"""Passages from a RAGFlow server: here our own, which speaks its route, behind a real socket."""

import threading
from collections.abc import Iterator

import pytest
from flask import Flask
from werkzeug.serving import make_server

from conf.settings import TextModelSettings
from services.errors import ModelFailure
from services.events import ErrorCode
from services.knowledge.datasets import DatasetService
from services.knowledge.ingestion import add_text
from services.principal import Principal
from services.rag.ragflow_retriever import RagflowRetriever
from tests.conftest import Person


@pytest.fixture
def address(app: Flask) -> Iterator[str]:
    server = make_server("127.0.0.1", 0, app, threaded=True)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join(5)


def test_finds_passages_with_their_documents_and_similarities(alice: Person, address: str) -> None:
    owner = Principal(str(alice.tenant_id))
    dataset = DatasetService.create(owner, "docs").id
    add_text(owner, dataset, "pump.md", "# Pump\n\nA pump moves water.")
    add_text(owner, dataset, "oil.md", "# Oil\n\nOil floats on water.")
    settings = TextModelSettings(base_url=address, api_key=str(alice.token))
    retriever = RagflowRetriever(settings, [dataset], similarity_threshold=0)
    best, other = retriever.retrieve("Which pump moves water?", 5)
    assert (best.text, best.metadata["document_name"]) == ("# Pump\n\nA pump moves water.", "pump.md")
    assert 1 >= best.metadata["similarity"] > other.metadata["similarity"] > 0
    assert [found.id for found in retriever.retrieve("Which pump moves water?", 1)] == [best.id]
    assert retriever.retrieve("pump", 0) == []
    with pytest.raises(ModelFailure) as refused:
        RagflowRetriever(settings, ["nope"]).retrieve("pump", 1)
    assert (refused.value.code, "don't own" in refused.value.detail) == (ErrorCode.INVALID_REQUEST, True)
    with pytest.raises(ModelFailure) as unknown:
        RagflowRetriever(TextModelSettings(base_url=address, api_key="wrong"), [dataset]).retrieve("pump", 1)
    assert unknown.value.code is ErrorCode.INVALID_REQUEST


def test_a_server_that_is_gone_is_a_network_failure() -> None:
    settings = TextModelSettings(base_url="http://127.0.0.1:9", retries=0)
    with pytest.raises(ModelFailure) as gone:
        RagflowRetriever(settings, ["d"]).retrieve("pump", 1)
    assert gone.value.code is ErrorCode.NETWORK_ERROR
