"""Datasets, documents, passages and retrieval over RAGFlow's API."""
# ruff: noqa: F811 (a fixture that is imported is then named by a parameter)

import io
import time

import pytest

from tests.contracts.shared_server import acme, alice, app, bob, charlie, models, person  # noqa: F401

GUIDE = "# Guide\n\n## Pumps\n\nA pump moves water.\n\n## Valves\n\nA valve stops oil.\n"


@pytest.fixture(scope="module")
def overrides():
    return {"ingest": {"poll": 0.05}, "limits": {"files": 3, "upload_bytes": 200_000}}


@pytest.fixture
def dataset(alice):
    return alice.ok("POST", "/datasets", {"name": "docs"})["id"]


def upload(person, dataset, **files):
    data = {"file": [(io.BytesIO(content.encode()), name.replace("_", ".")) for name, content in files.items()]}
    return person("POST", f"/datasets/{dataset}/documents", data=data, content_type="multipart/form-data").get_json()


def settled(person, dataset):
    """The dataset's documents by name once none is being parsed."""
    for _ in range(200):
        docs = person.ok("GET", f"/datasets/{dataset}/documents?page_size=100&orderby=name&desc=false")["docs"]
        if all(doc["run"] not in ("RUNNING",) for doc in docs):
            return docs
        time.sleep(0.05)
    raise AssertionError(docs)


def parsed(person, dataset, **files):
    """Upload, have it parsed, and wait."""
    ids = [doc["id"] for doc in upload(person, dataset, **files)["data"]]
    person.ok("POST", f"/datasets/{dataset}/chunks", {"document_ids": ids})
    return settled(person, dataset)


def test_a_dataset_is_made_read_changed_listed_and_deleted(alice):
    made = alice.ok("POST", "/datasets", {
        "name": "docs", "avatar": None, "description": "What we know", "embedding_model": None, "permission": "me",
        "chunk_method": "naive",
    })
    assert (made["name"], made["chunk_count"], made["document_count"], made["embedding_model"]) == ("docs", 0, 0, "")
    assert "warnings" not in made
    changed = alice.ok("PUT", f"/datasets/{made['id']}", {"name": "papers"})
    assert (changed["name"], changed["description"]) == ("papers", "What we know")
    body = alice("GET", "/datasets?name=papers").get_json()
    assert ([found["id"] for found in body["data"]], body["total_datasets"]) == ([made["id"]], 1)
    assert alice.ok("GET", "/datasets?keywords=PAP")[0]["id"] == made["id"]
    alice.ok("DELETE", "/datasets", {"ids": [made["id"]]})
    assert alice.ok("GET", "/datasets") == []


@pytest.mark.parametrize(("body", "code", "text"), [
    ({}, 101, "`name` is required"), ({"name": 5}, 101, "`name` is required"), ({"name": " "}, 101, "1 to 255"),
    ({"name": "x" * 256}, 101, "1 to 255"), ({"name": "docs"}, 102, "'docs' already"),
    ({"name": "n", "description": 5}, 101, "`description` must be a text"),
    ({"name": "n", "embedding_model": "BAAI/none@BAAI"}, 102, "isn't set up here"),
    ({"name": "n", "embedding_model": 5}, 101, "`embedding_model` must be a text"),
])
def test_a_dataset_that_cannot_be_is_refused_in_a_sentence(alice, dataset, body, code, text):
    told, message = alice.refused("POST", "/datasets", body)
    assert (told, text in message) == (code, True), message


def test_what_nobody_does_is_answered_with_a_warning(alice):
    asked = {"name": "w", "chunk_method": "book", "permission": "team", "parser_config": {"a": 1}}
    told = alice.ok("POST", "/datasets", asked)["warnings"]
    assert [word in told[n] for n, word in enumerate(("book", "permission", "parser_config"))] == [True] * 3


def test_a_file_is_kept_parsed_when_asked_and_found(alice, dataset):
    [kept] = upload(alice, dataset, guide_md=GUIDE)["data"]
    assert (kept["name"], kept["run"], kept["size"], kept["dataset_id"]) == ("guide.md", "UNSTART", len(GUIDE), dataset)
    alice.ok("POST", f"/datasets/{dataset}/chunks", {"document_ids": [kept["id"]]})
    [done] = settled(alice, dataset)
    assert (done["run"], done["progress"], done["chunk_count"]) == ("DONE", 1.0, 2)
    assert alice.ok("GET", f"/datasets/{dataset}")["chunk_count"] == 2
    answer = alice("GET", f"/datasets/{dataset}/documents/{kept['id']}")
    assert answer.get_data(as_text=True) == GUIDE
    assert answer.headers["Content-Disposition"].startswith("attachment")
    question = {"dataset_ids": [dataset], "question": "What moves water?", "highlight": True}
    found = alice.ok("POST", "/retrieval", question)
    [chunk] = found["chunks"]
    assert (chunk["document_name"], chunk["document_id"], found["total"]) == ("guide.md", kept["id"], 1)
    assert "<em>moves</em> <em>water</em>" in chunk["highlight"]


def test_a_word_is_marked_in_the_form_that_it_was_found_in(alice, dataset):
    parsed(alice, dataset, ferry_md="# Ferry\n\nGoats travel on the lower deck.")
    wish = {"dataset_ids": [dataset], "question": "Where is my goat?", "highlight": True}
    [chunk] = alice.ok("POST", "/retrieval", wish)["chunks"]
    assert "<em>Goats</em> travel on the" in chunk["highlight"]


def test_a_file_of_the_same_name_replaces_the_one_before(alice, dataset):
    [before] = parsed(alice, dataset, a_md="# A\n\nzebra")
    [kept] = upload(alice, dataset, a_md="# A\n\nlion")["data"]
    assert (kept["id"], kept["run"]) == (before["id"], "UNSTART")

    def found(word):
        return alice.ok("POST", "/retrieval", {"dataset_ids": [dataset], "question": word})["total"]

    assert (found("zebra"), found("lion")) == (1, 0)  # until the new one is parsed
    alice.ok("POST", f"/datasets/{dataset}/documents/parse", {"document_ids": [before["id"]]})
    settled(alice, dataset)
    assert (found("zebra"), found("lion")) == (0, 1)


def test_a_file_that_is_no_text_fails_with_a_sentence_and_the_next_one_goes_on(alice, dataset):
    docs = parsed(alice, dataset, a_pdf="%PDF-1.7 broken", b_txt="PK\x03\x04 zip", c_txt="fine")
    assert [(doc["run"], doc["progress"]) for doc in docs] == [("FAIL", -1.0), ("FAIL", -1.0), ("DONE", 1.0)]
    assert all(len(doc["progress_msg"]) > 10 for doc in docs[:2])


@pytest.mark.parametrize("files", [{}, {f"f{n}_txt": "x" for n in range(4)}, {"big_txt": "x" * 300_000}])
def test_an_upload_of_nothing_or_too_much_is_refused(alice, dataset, files):
    body = upload(alice, dataset, **files)
    assert (body["code"], len(body["message"]) > 5) == (413 if files else 101, True)
    assert alice.ok("GET", f"/datasets/{dataset}/documents")["total"] == 0


def test_an_upload_that_is_refused_keeps_none_of_its_files(alice, dataset):
    body = upload(alice, dataset, **{"sound_txt": "x", f"{'n' * 256}_txt": "y"})
    assert (body["code"], "255" in body["message"]) == (101, True)
    assert alice.ok("GET", f"/datasets/{dataset}/documents")["total"] == 0


def test_documents_are_listed_by_state_name_and_words(alice, dataset):
    parsed(alice, dataset, alpha_txt="one", beta_txt="two")
    [gamma] = upload(alice, dataset, gamma_txt="three")["data"]

    def names(query):
        return sorted(doc["name"] for doc in alice.ok("GET", f"/datasets/{dataset}/documents?{query}")["docs"])

    assert names("run=DONE") == names("run=3") == ["alpha.txt", "beta.txt"]
    assert names(f"id={gamma['id']}") == names("keywords=GAM") == names("name=gamma.txt") == ["gamma.txt"]
    assert names("create_time_from=99999999999999") == []
    assert alice.refused("GET", f"/datasets/{dataset}/documents?create_time_from=x")[0] == 101


def test_parsing_is_cancelled(alice, dataset):
    [kept] = upload(alice, dataset, a_txt="x")["data"]
    body = {"document_ids": [kept["id"], "nope"]}
    for method in ("POST", "DELETE"):
        partly = alice(method, f"/datasets/{dataset}/chunks", body).get_json()
        assert (partly["code"], partly["data"]["success_count"]) == (0, 1)
    assert settled(alice, dataset)[0]["run"] in ("CANCEL", "DONE")
    assert alice.refused("POST", f"/datasets/{dataset}/chunks", {})[0] == 102


@pytest.mark.parametrize(("method", "path", "key", "done"), [
    ("POST", "chunks", "document_ids", "parsed"), ("POST", "documents/parse", "document_ids", "parsed"),
    ("DELETE", "chunks", "document_ids", "stopped"), ("POST", "documents/stop", "document_ids", "stopped"),
    ("DELETE", "documents", "ids", "deleted"),
])
def test_a_report_says_what_was_done_and_to_which_documents_it_was_not(alice, dataset, method, path, key, done):
    [kept] = upload(alice, dataset, a_txt="x")["data"]
    told = alice(method, f"/datasets/{dataset}/{path}", {key: [kept["id"], kept["id"], "nope"]}).get_json()
    assert (told["code"], told["message"]) == (0, f"Partially {done} 1 documents with 2 errors")
    errors = ["The dataset doesn't own the document nope", f"Duplicate document ids: {kept['id']}"]
    assert told["data"] == {"success_count": 1, "errors": errors}
    assert alice.refused(method, f"/datasets/{dataset}/{path}", {key: ["nope"]}) == (102, errors[0])


def test_meta_fields_choose_the_documents_that_are_searched(alice, dataset):
    docs = parsed(alice, dataset, a_txt="pump one", b_txt="pump two")
    for doc, year in zip(docs, (2020, 2024), strict=True):
        path = f"/datasets/{dataset}/documents/{doc['id']}"
        assert alice.ok("PATCH", path, {"meta_fields": {"year": year}})["meta_fields"] == {"year": year}

    def names(condition):
        body = {"dataset_ids": [dataset], "question": "pump", "metadata_condition": condition}
        return sorted(chunk["document_name"] for chunk in alice.ok("POST", "/retrieval", body)["chunks"])

    newer = {"name": "year", "comparison_operator": ">", "value": "2021"}
    assert names({"conditions": [newer]}) == ["b.txt"]
    assert names({"conditions": [newer, {"name": "year", "comparison_operator": "is", "value": 2020}],
                  "logic": "or"}) == ["a.txt", "b.txt"]
    assert names({"conditions": [{"name": "tag", "comparison_operator": "is", "value": 1}]}) == []
    bad = {"dataset_ids": [dataset], "question": "pump", "metadata_condition": {"conditions": [newer | {
        "comparison_operator": "like"}]}}
    assert alice.refused("POST", "/retrieval", bad)[0] == 101


def test_passages_are_listed_written_changed_and_deleted(alice, dataset):
    [doc] = parsed(alice, dataset, guide_md=GUIDE)
    path = f"/datasets/{dataset}/documents/{doc['id']}/chunks"
    made = alice.ok("POST", path, {"content": "A gasket seals.", "important_keywords": ["rubber"], "questions": []})
    assert made["chunk"]["content"] == "A gasket seals."
    listed = alice.ok("GET", path)
    assert [listed["total"], listed["chunks"][-1]["id"]] == [3, made["chunk"]["id"]]

    def found(word):
        return alice.ok("POST", "/retrieval", {"dataset_ids": [dataset], "question": word})["total"]

    assert found("rubber") == 1
    one = f"{path}/{made['chunk']['id']}"
    alice.ok("PATCH", one, {"content": "A washer seals."})
    assert (found("gasket"), found("washer")) == (0, 1)
    alice.ok("PATCH", one, {"available": False})
    assert found("washer") == 0
    alice.ok("DELETE", path, {"chunk_ids": [made["chunk"]["id"]]})
    assert alice.ok("DELETE", path, {"chunk_ids": None, "delete_all": True}) == {"deleted": 2}
    assert alice.ok("GET", f"/datasets/{dataset}")["chunk_count"] == 0
    assert alice.refused("POST", path, {"content": " "})[0] == 101
    assert alice.refused("PATCH", one, {"content": "x"})[0] == 102


@pytest.mark.parametrize("big", [
    {"content": " ".join(f"w{n}" for n in range(150_000))},
    {"content": "x", "important_keywords": [f"w{n}" for n in range(150_000)]},
    {"content": "x", "questions": ["".join(map(chr, range(0x4E00, 0x9F00))) * 3]},
], ids=["content", "keywords", "questions"])
def test_a_passage_that_no_index_takes_is_refused_alike_on_both_engines(alice, dataset, big):
    [doc] = parsed(alice, dataset, guide_md="# Pumps")
    path = f"/datasets/{dataset}/documents/{doc['id']}/chunks"
    [chunk] = alice.ok("GET", path)["chunks"]
    for method, place in (("POST", path), ("PATCH", f"{path}/{chunk['id']}")):
        code, message = alice.refused(method, place, big)
        assert (code, "20,000 characters" in message) == (101, True)
    most = "".join(chr(0x4E00 + n * 7919 % 20_000) for n in range(19_900))
    assert alice.ok("POST", path, {"content": most})["chunk"]["content"] == most
    assert alice.ok("GET", f"/datasets/{dataset}")["chunk_count"] == 2


@pytest.mark.parametrize("keywords", ["ÜBER", "über", "Über", "école", "ЩИТ"])
def test_keywords_are_found_in_any_case_of_any_alphabet(alice, keywords):
    name = "Über École Щит"
    made = alice.ok("POST", "/datasets", {"name": name})["id"]
    [doc] = parsed(alice, made, **{f"{name}_txt": name})
    path, query = f"/datasets/{made}/documents", {"keywords": keywords}
    found = [
        len(alice.ok("GET", "/datasets", query_string=query)), alice.ok("GET", path, query_string=query)["total"],
        alice.ok("GET", f"{path}/{doc['id']}/chunks", query_string=query)["total"],
    ]
    assert found == [1, 1, 1]


def test_documents_go_with_their_passages(alice, dataset):
    first, *_ = parsed(alice, dataset, a_txt="pump one", b_txt="pump two", c_txt="pump three")
    path = f"/datasets/{dataset}/documents"
    assert alice.ok("DELETE", path, {"ids": [first["id"], "nope"]})["success_count"] == 1
    assert alice.ok("DELETE", path, {"ids": None, "delete_all": True}) == {"deleted": 2}
    found = alice.ok("GET", f"/datasets/{dataset}")
    assert (found["document_count"], found["chunk_count"]) == (0, 0)


@pytest.mark.parametrize(("change", "code"), [
    ({"dataset_ids": None}, 102), ({"dataset_ids": "x"}, 101), ({"dataset_ids": ["nope"]}, 102),
    ({"question": 5}, 101), ({"top_k": "x"}, 101), ({"top_k": 0}, 101), ({"similarity_threshold": True}, 101),
    ({"page": 0}, 101), ({"document_ids": [5]}, 101), ({"metadata_condition": []}, 101),
    ({"rerank_id": "nope"}, 102), ({"question": "x" * 262_145}, 101),
])
def test_a_retrieval_that_makes_no_sense_is_refused(alice, dataset, change, code):
    body = {"dataset_ids": [dataset], "question": "pump"} | change
    assert alice.refused("POST", "/retrieval", body)[0] == code


def test_retrieval_pages_and_warns(alice, dataset):
    parsed(alice, dataset, a_txt="pump one", b_txt="pump two", c_txt="pump three")
    body = {"dataset_ids": [dataset], "question": "pump", "page_size": 2, "keyword": True,
            "vector_similarity_weight": 0.9}
    first, second = (alice.ok("POST", "/retrieval", body | {"page": page}) for page in (1, 2))
    assert [len(first["chunks"]), len(second["chunks"]), first["total"]] == [2, 1, 3]
    assert ["keyword" in first["warnings"][0], "embedding model" in first["warnings"][1]] == [True, True]
    assert alice.ok("POST", "/retrieval", {"dataset_ids": [dataset], "question": ""})["chunks"] == []


def test_a_stranger_finds_no_dataset_in_any_way(alice, charlie, dataset):
    [doc] = parsed(alice, dataset, a_txt="secret")
    one = f"/datasets/{dataset}/documents/{doc['id']}"
    for method, path, body in (
        ("GET", f"/datasets/{dataset}", None), ("PUT", f"/datasets/{dataset}", {"name": "mine"}), ("GET", one, None),
        ("PATCH", one, {"name": "mine"}), ("GET", f"{one}/chunks", None), ("POST", f"{one}/chunks", {"content": "x"}),
        ("DELETE", f"{one}/chunks", {"delete_all": True}), ("DELETE", "/datasets", {"ids": [dataset]}),
        ("POST", "/retrieval", {"dataset_ids": [dataset], "question": "secret"}),
        ("POST", f"/datasets/{dataset}/chunks", {"document_ids": [doc["id"]]}),
    ):
        code, message = charlie.refused(method, path, body)
        unknown = charlie.refused(method, path.replace(dataset, "u" * 32), body and {
            key: ["u" * 32] if value == [dataset] else value for key, value in body.items()
        })
        assert (code, message.replace(dataset, "u" * 32)) == unknown
    assert charlie.ok("GET", "/datasets") == []
    assert charlie.ok("DELETE", "/datasets", {"delete_all": True}) == {"success_count": 0}
    assert alice.ok("GET", f"/datasets/{dataset}")["chunk_count"] == 1
