"""The unmodified ragflow-sdk over a socket."""

import pytest
from ragflow_sdk import RAGFlow


@pytest.fixture
def ragflow(server):
    token = server.token()
    return RAGFlow(token, server.start().base)


def test_chats_are_made_listed_changed_and_deleted(ragflow):
    chat = ragflow.create_chat("mine")
    chat.update({"name": "ours"})
    assert [found.name for found in ragflow.list_chats(name="ours")] == ["ours"]
    with pytest.raises(Exception, match="duplicated chat name"):
        ragflow.create_chat("OURS")
    ragflow.delete_chats(ids=[chat.id])
    assert ragflow.list_chats() == []


def test_a_session_is_asked_both_ways_and_read_back(ragflow):
    chat = ragflow.create_chat("mine", prompt_config={"prologue": "Hello!"})
    session = chat.create_session("first")
    streamed = list(session.ask("What is a slot?", stream=True))
    [plain] = session.ask("And a page?", stream=False)
    text = "".join(message.content for message in streamed)
    [stored] = chat.list_sessions(id=session.id)
    assert [entry["content"] for entry in stored.messages] == [
        "Hello!", "What is a slot?", text, "And a page?", plain.content,
    ]
    assert streamed[-1].id == stored.messages[2]["id"] and plain.id == stored.messages[4]["id"]


def test_a_character_that_ends_lines_in_unicode_loses_nothing(ragflow):
    greeting = "One\x85two\u2028three\u2029four."
    session = ragflow.create_chat("mine", prompt_config={"prologue": greeting}).create_session("first")
    assert "".join(message.content for message in session.ask("Hello", stream=True)) == greeting


def test_sessions_are_renamed_listed_and_deleted(ragflow):
    chat = ragflow.create_chat("mine")
    session = chat.create_session("first")
    session.update({"name": "second"})
    assert [found.name for found in chat.list_sessions()] == ["second"]
    with pytest.raises(Exception, match="The chat doesn't own the session nope"):
        chat.delete_sessions(ids=["nope"])
    chat.delete_sessions(ids=[session.id])
    assert chat.list_sessions() == []


def test_an_error_is_a_message_never_an_exception_of_the_client(ragflow):
    chat = ragflow.create_chat("mine")
    session = chat.create_session("first")
    session.id = "unknown"
    for stream in (True, False):
        [message] = session.ask("hello?", stream=stream)
        assert message.content == "**ERROR**: Session not found!"


GUIDE = b"# Guide\n\n## Pumps\n\nA pump moves water.\n\n## Valves\n\nA valve stops oil.\n"


def test_documents_are_uploaded_parsed_retrieved_and_asked_about(ragflow):
    dataset = ragflow.create_dataset("dataset_0")
    [document] = dataset.upload_documents([{"display_name": "guide.md", "blob": GUIDE}])
    assert (document.name, document.run) == ("guide.md", "UNSTART")
    assert dataset.parse_documents([document.id]) == [(document.id, "DONE", 2, 0)]
    [listed] = dataset.list_documents(id=document.id)
    assert (listed.run, listed.chunk_count, listed.download()) == ("DONE", 2, GUIDE)
    [chunk] = ragflow.retrieve(dataset_ids=[dataset.id], question="What moves water?")
    assert (chunk.document_id, "A pump moves water." in chunk.content, chunk.similarity > 0.5) == (
        document.id, True, True)
    assert [len(listed.list_chunks()), listed.list_chunks(keywords="VALVE")[0].document_name] == [2, "guide.md"]
    added = listed.add_chunk("A gasket seals.", important_keywords=["rubber"])
    assert ragflow.retrieve(dataset_ids=[dataset.id], question="rubber")[0].id == added.id
    added.update({"content": "A washer seals."})
    listed.delete_chunks(ids=[added.id])
    chat = ragflow.create_chat("mine", dataset_ids=[dataset.id])
    [answer] = chat.create_session("first").ask("What moves water?", stream=False)
    assert "A pump moves water." in answer.content
    assert answer.reference[0]["document_name"] == "guide.md"


def test_datasets_and_documents_are_named_listed_and_deleted(ragflow):
    dataset = ragflow.create_dataset("dataset_0")
    assert dataset.update({"name": "renamed"}).name == "renamed"
    assert ragflow.get_dataset("renamed").id == dataset.id
    files = [{"display_name": f"{n}.txt", "blob": b"text"} for n in range(3)]
    first, *_ = dataset.upload_documents(files)
    assert first.update({"name": "zero.txt", "meta_fields": {"year": 2024}}).meta_fields.year == 2024
    dataset.async_parse_documents([first.id])
    dataset.async_parse_documents([first.id])
    dataset.async_cancel_parse_documents([first.id])
    dataset.delete_documents(ids=[first.id])
    assert [found.name for found in dataset.list_documents(orderby="name", desc=False)] == ["1.txt", "2.txt"]
    dataset.delete_documents(delete_all=True)
    assert dataset.list_documents() == []
    with pytest.raises(Exception, match="dataset"):
        ragflow.create_dataset("renamed")
    ragflow.delete_datasets(ids=[dataset.id])
    assert ragflow.list_datasets() == []
