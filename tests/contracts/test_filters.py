"""A filter chooses the same documents wherever it stands: in a retrieval, in a question, in a chat; on both engines."""
# ruff: noqa: F811 (a fixture that is imported is then named by a parameter)

import pytest

from services.knowledge.documents import DocumentService
from services.knowledge.ingestion import add_text
from services.principal import Principal
from tests.contracts.shared_server import acme, alice, app, models, overrides, person  # noqa: F401

META = {
    "a.txt": {"year": "2024", "number": 20240101000000001, "final": True, "code": "007"},
    "b.txt": {"year": 2023, "number": "20240101000000002", "final": False, "code": "70"},
}


@pytest.fixture
def dataset(alice):
    made = alice.ok("POST", "/datasets", {"name": "reports"})["id"]
    owner = Principal(alice.tenant_id)
    for name in META:
        add_text(owner, made, name, f"The zebra report {name}")
    for row in DocumentService.all(owner, made):
        alice.ok("PATCH", f"/datasets/{made}/documents/{row.id}", {"meta_fields": META[row.name]})
    return made


@pytest.mark.parametrize(("key", "operator", "value", "found"), [
    ("year", "start with", "20", "ab"), ("year", "contains", 20, "ab"), ("year", "not contains", "20", ""),
    ("code", "start with", "00", "a"), ("code", "end with", "7", "a"), ("code", "=", "7", ""),
    ("year", "in", "2023, 2024", "ab"), ("year", "in", [2024], "a"), ("year", "not in", "2023", "a"),
    ("year", ">", "999", "ab"), ("number", "=", "20240101000000001", "a"), ("number", "≠", 20240101000000001, "b"),
    ("number", ">", "20240101000000001", "b"), ("final", "=", "true", "a"), ("final", "≠", True, "b"),
    ("final", "in", "true,false", "ab"), ("final", "=", 1, ""), ("final", "not empty", "", "ab"),
])
def test_a_filter_chooses_the_same_documents_wherever_it_stands(alice, dataset, key, operator, value, found):
    condition = {"conditions": [{"name": key, "comparison_operator": operator, "value": value}]}
    rule = {"method": "manual", "manual": [{"key": key, "op": operator, "value": value}]}
    chats = [
        alice.ok("POST", "/chats", {"name": name, "dataset_ids": [dataset], "similarity_threshold": 0} | more)["id"]
        for name, more in (("all", {}), ("some", {"meta_data_filter": rule}))
    ]
    asked = {"question": "zebra", "metadata_condition": condition}
    answers = [
        alice.ok("POST", "/retrieval", asked | {"dataset_ids": [dataset]}),
        *(alice.ok("POST", f"/chats/{id}/completions", {"question": "zebra", "stream": False} | more)["reference"]
          for id, more in zip(chats, ({"metadata_condition": condition}, {}), strict=True)),
    ]
    names = ["".join(sorted(chunk["document_name"][0] for chunk in answer["chunks"])) for answer in answers]
    assert names == [found] * 3
