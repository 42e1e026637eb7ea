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
