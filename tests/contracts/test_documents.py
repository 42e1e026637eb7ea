"""What a document and its passages may be given: it has its effect, or the answer says that it has none."""
# ruff: noqa: F811 (a fixture that is imported is then named by a parameter)

import time

import pytest

from services.knowledge.ingestion import add_text
from services.principal import Principal
from tests.contracts.shared_server import acme, alice, app, bob, charlie, models, person  # noqa: F401


@pytest.fixture(scope="module")
def overrides():
    return {"ingest": {"poll": 0.05}}


@pytest.fixture
def dataset(alice):
    made = alice.ok("POST", "/datasets", {"name": "docs"})["id"]
    for name in ("pump.md", "valve.md"):
        add_text(Principal(alice.tenant_id), made, name, f"A {name} moves water.\n\n# More\n\nWater is in {name} too.")
    return made


@pytest.fixture
def pump(alice, dataset):
    """The path of one of the two documents."""
    return f"/datasets/{dataset}/documents/{at(alice, dataset, 'pump.md')['id']}"


def at(person, dataset, name):
    return person.ok("GET", f"/datasets/{dataset}/documents?name={name}")["docs"][0]


def found(person, dataset):
    """How many passages of which document a question finds, and so a chat."""
    body = {"dataset_ids": [dataset], "question": "water", "similarity_threshold": 0}
    return {each["doc_name"]: each["count"] for each in person.ok("POST", "/retrieval", body)["doc_aggs"]}


BOTH = {"pump.md": 2, "valve.md": 2}


@pytest.mark.parametrize("off", [False, 0, "false", "0"])
def test_a_document_that_is_switched_off_is_not_found_until_it_is_switched_on(alice, bob, dataset, pump, off):
    assert found(alice, dataset) == BOTH
    changed = alice.ok("PATCH", pump, {"enabled": off})
    assert (changed["status"], "warnings" in changed, found(bob, dataset)) == ("0", False, {"valve.md": 2})
    chat = alice.ok("POST", "/chats", {"name": "c", "dataset_ids": [dataset], "similarity_threshold": 0})["id"]
    answer = alice.ok("POST", f"/chats/{chat}/completions", {"question": "water", "stream": False})
    assert {chunk["document_name"] for chunk in answer["reference"]["chunks"]} == {"valve.md"}
    assert [at(bob, dataset, name)["status"] for name in ("pump.md", "valve.md")] == ["0", "1"]
    assert alice.ok("PUT", pump, {"enabled": True})["status"] == "1"
    assert found(alice, dataset) == BOTH


def test_passages_that_a_document_gets_later_are_off_as_it_is(alice, dataset, pump):
    alice.ok("PATCH", pump, {"enabled": False, "name": "pump2.md"})
    assert alice.ok("POST", f"{pump}/chunks", {"content": "water by hand"})["chunk"]["available"] is False
    alice.ok("POST", f"/datasets/{dataset}/chunks", {"document_ids": [pump.rpartition("/")[2]]})
    while at(alice, dataset, "pump2.md")["run"] != "DONE":
        time.sleep(0.02)
    assert [chunk["available"] for chunk in alice.ok("GET", f"{pump}/chunks")["chunks"]] == [False] * 2
    assert found(alice, dataset) == {"valve.md": 2}
    alice.ok("PATCH", pump, {"enabled": True})
    assert found(alice, dataset) == {"pump2.md": 2, "valve.md": 2}


def test_a_passage_that_is_off_by_itself_stays_so_while_its_document_is_on(alice, dataset, pump):
    first = alice.ok("GET", f"{pump}/chunks")["chunks"][0]
    alice.ok("PATCH", f"{pump}/chunks/{first['id']}", {"available": False})
    for change in ({"enabled": True}, {"enabled": None}, {"meta_fields": {"a": 1}}):
        assert alice.ok("PATCH", pump, change)["status"] == "1"
    assert found(alice, dataset) == {"pump.md": 1, "valve.md": 2}


@pytest.mark.parametrize("wrong", [2, "maybe", [], {}, 0.5])
def test_what_is_no_switch_is_refused_and_nothing_is_changed(alice, dataset, pump, wrong):
    code, message = alice.refused("PATCH", pump, {"name": "other.md", "enabled": wrong})
    assert (code, "`enabled` must be true or false" in message) == (101, True)
    assert (at(alice, dataset, "pump.md")["status"], found(alice, dataset)) == ("1", BOTH)


def test_a_stranger_switches_nothing(alice, charlie, dataset, pump):
    assert charlie.refused("PATCH", pump, {"enabled": False})[0] == 102
    assert found(alice, dataset) == BOTH


DATASET = ["chunk_method", "permission", "parser_config", "auto_metadata_config", "pagerank", "parse_type",
           "pipeline_id", "language"]
CHUNK = ["tag_kwd", "image_base64", "positions"]


@pytest.mark.parametrize(("method", "path", "names", "more"), [
    ("POST", "/datasets", DATASET, {"name": "other"}), ("PUT", "/datasets/{dataset}", DATASET, {}),
    ("PUT", "{pump}", DATASET[:3:2], {}), ("PATCH", "{pump}", DATASET[:3:2], {}),
    ("POST", "{pump}/chunks", CHUNK, {"content": "text"}), ("PUT", "{pump}/chunks/{chunk}", CHUNK, {}),
    ("PATCH", "{pump}/chunks/{chunk}", CHUNK, {"content": "text"}),
])
def test_a_field_of_ragflow_that_nobody_does_is_named_in_the_warnings(alice, dataset, pump, method, path, names, more):
    chunk = alice.ok("GET", f"{pump}/chunks")["chunks"][0]["id"]
    path = path.format(dataset=dataset, pump=pump, chunk=chunk)
    told = alice.ok(method, path, more | {name: "qa" for name in names} | {"unknown": 1})["warnings"]
    assert [word.partition("`")[2].partition("`")[0] for word in told] == names
    asks_nothing = {name: value for name, value in zip(names, [None, "", 0, {}, [], False, None, ""], strict=False)}
    again = {"name": "third"} if path == "/datasets" else more
    assert "warnings" not in alice.ok(method, path, again | asks_nothing)
    as_it_is = {"name": "4.md", "chunk_method": "naive", "permission": "me"}
    assert "warnings" not in alice.ok(method, path, again | as_it_is)
