"""Real questions to the demo chat, retrieval included: what the built-in model's answer must say."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from api.demo import ensure_demo
from conf.settings import load_settings
from db.database import open_database
from db.ids import new_id
from services.api_tokens import TenantService
from services.events import Question, Sources, TextDelta
from services.principal import Principal
from services.rag.chat_models import ExtractiveChatModel
from services.rag.extractive import NOTHING_FITS
from services.rag.pipeline import DialogAnswerer
from tests.fakes import ScriptedModels

WHAT_IT_IS = "Chatkeep is a conversation store and chat server for RAG applications."
DATABASE_URL = "CHATKEEP_DATABASE_URL=postgresql://user:password@host/name"
MODEL = "export CHATKEEP_MODEL_BASE_URL=http://127.0.0.1:8080/v1"

Demo = Callable[[str], tuple[str, list[str]]]


@pytest.fixture(scope="module")
def demo(engine: str, prepared: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Demo]:
    """Asks the demo chat; gives the answer and the passages that it had."""
    folder = tmp_path_factory.mktemp("demo")
    url = prepared
    if engine == "sqlite":
        (folder / "demo.db").write_bytes(Path(prepared.removeprefix("sqlite:///")).read_bytes())
        url = f"sqlite:///{folder / 'demo.db'}"
    opened = open_database(load_settings(database={"url": url}))
    principal = Principal(TenantService.ensure(f"demo {new_id()}").id)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)  # the token's file lies where the server runs
        dialog, _ = ensure_demo(principal)

    def ask(question: str) -> tuple[str, list[str]]:
        answerer = DialogAnswerer(dialog, principal, ExtractiveChatModel(), ScriptedModels())
        events = list(answerer.answer(Question(question)))
        sources = [event for event in events if isinstance(event, Sources)]
        text = "".join(event.text for event in events if isinstance(event, TextDelta))
        return text, [chunk["content"] for event in sources for chunk in event.chunks]

    yield ask
    opened.close_all()


QUESTIONS = [
    # what it is
    ("What is Chatkeep?", WHAT_IT_IS), ("Was ist Chatkeep?", WHAT_IT_IS),
    ("What license?", "The license is Apache-2.0."),
    ("Does ragflow-sdk work?", "`ragflow-sdk` works unchanged"),
    ("Funktioniert das ragflow-sdk?", "`ragflow-sdk` works unchanged"),
    ("Why threads and not async?", "Async would hold more idle streams a process."),
    ("Why four top-level packages?", "The wheel installs `api`, `services`, `db` and `conf` as top-level packages."),
    # how to begin
    ("What do I need to run it?", "Python 3.11 or newer and `make` are all you need to run it."),
    ("Which Python version do I need?", "Python 3.11 or newer"),
    ("How do I change the port?", "make run PORT=9400"),
    ("What is the default port?", "`9380`"),
    ("Where is the demo token kept?", "var/demo-token"),
    ("How do I run the tests?", "make test"),
    ("What does make faults do?", "kills and pauses servers and databases under load"),
    ("How can I ask a question with curl?", "curl -sN"),
    # models and databases
    ("How do I connect my own model?", MODEL),
    ("How do I return to the extractive model?", "unset CHATKEEP_MODEL_BASE_URL"),
    ("How do I connect to PostgreSQL?", DATABASE_URL), ("Wie verbinde ich PostgreSQL?", DATABASE_URL),
    ("Can several servers share one database?", "Any number of servers may share one PostgreSQL"),
    ("Can I use SQLite on a network file system?", "Do not put it on a network file system."),
    ("How many connections does a process hold?", "at most thirteen connections"),
    ("What happens behind a transaction pooler?", "CHATKEEP_DATABASE_POOLER=true"),
    # commands and operation
    ("Is there authentication?", "Authorization: Bearer <token>"),
    ("How do I create a token?", "chatkeep token create"),
    ("How do I add documents to a dataset?", "chatkeep dataset add"),
    ("What does chatkeep doctor do?", "looks at every session without changing anything"),
    ("Was macht chatkeep doctor?", "looks at every session without changing anything"),
    ("Where do I find the settings?", "conf/settings.py"),
    ("Where are the logs?", "Logs are JSON lines on standard error"),
    ("Wo liegen die Logs?", "Logs are JSON lines on standard error"),
    ("How do I check that the server is alive?", "/healthz"),
    ("What happens to deleted chats?", "Deleting a chat hides it and its sessions"),
    # one setting, one row of a table
    ("What does CHATKEEP_SERVER_THREADS mean?", "requests and open streams at once"),
    ("What is CHATKEEP_RUNS_LIMIT?", "runs a process answers at once"),
    ("How long does a question wait in the queue?", "seconds a question waits for the session's turn"),
    ("What is the default value of CHATKEEP_DOCUMENT_PAGE_BYTES?", "16384"),
    ("Was bedeutet CHATKEEP_STREAM_DURABILITY?", "a delta is on disk before a reader gets it"),
    ("What does pass_all_history_messages do?", "context for the model; stored only in a session without turns"),
    ("What happens to integers beyond 64 bits?", "101: no database keeps them"),
    ("How do I cancel a run?", "POST .../runs/<r>/cancel"),
    # how it works
    ("What is a slot?", "A slot is `{message_id, chunks, doc_aggs, citations?}`."),
    ("What is seq?", "`seq` is minted by the database"),
    ("What are new ids?", "New ids are UUIDv7"),
    ("How long is a lease?", "a lease of 15 seconds"),
    ("How often are events committed?", "every 50 ms"),
    ("What happens if the database stalls?", "A database that stalls delays readers"),
    ("How do I read a run's events after the connection broke?", "with the last `id` that it got"),
    # as people type who haven't read the documents
    ("which license is it under", "The license is Apache-2.0."),
    ("Can I use it with Ollama?", "works with Ollama"),
    ("How do I make a backup?", "chatkeep backup var/chatkeep.backup"),
    ("is there a docker image?", "The image holds Python and one environment."),
    ("How do I run it in docker", "docker run -d --name chatkeep"),
    ("how to upgrade to a new version", "git pull"),
    ("how do i turn off metrics", "CHATKEEP_SERVER_METRICS=false"),
    ("Can I use the openai python client?", "any OpenAI client does too"),
    ("What happens when the server crashes in the middle of an answer?", "After a crash the next start ends"),
    ("how many threads does the server have", "`CHATKEEP_SERVER_THREADS`"),
    ("How can I monitor it with Prometheus?", "`/metrics` is Prometheus text."),
    ("how long can a passage be", "A passage has at most 1,200 characters."),
    ("Can I move my old chats from ragflow?", "takes datasets with their files, chats"),
    ("Where can I change the log level?", "`CHATKEEP_LOG_LEVEL`"),
    ("wich port does the server listen on?", "`CHATKEEP_PORT`"),
    ("Is my data still there after kill -9?", "every turn is still there, also after `kill -9`"),
    ("pgbouncer", "pool_mode = transaction"),
    ("Need I a proxy for TLS?", "a proxy in front brings TLS"),
    ("what does prune do", "`chatkeep prune` counts what"),
    ("Does the sqlite file shrink after deleting?", "its file doesn't get smaller"),
    # as somebody asks who only wants to know whether it is for him
    ("How do I back up my chats?", "To back up your chats, run ```sh .venv/bin/chatkeep backup"),
    ("how can I backup my chats", "To back up your chats, run"),
    ("Who can see my chats?", "Your chats are private to your tenant: whoever has one of its tokens can see them"),
    ("Are my chats private?", "Your chats are private to your tenant"),
    ("How do I run it behind nginx?", "To run Chatkeep behind nginx, set `CHATKEEP_SERVER_PROXIES=1`"),
    ("How do I put it behind Caddy?", "To run Chatkeep behind Caddy, set"),
    ("What licence does it have?", "its licence, Apache-2.0"),
    ("How much does it cost?", "it costs nothing"), ("Is it free?", "Chatkeep is free and open source"),
    ("Is it open source?", "Chatkeep is free and open source"),
    # not in the documents
    ("can i mysql use?", NOTHING_FITS), ("Does it work with LangChain?", NOTHING_FITS),
    ("Can I log in with Google?", NOTHING_FITS), ("kubernetes helm chart", NOTHING_FITS),
    ("Do I need a GPU?", NOTHING_FITS), ("Is the stored data encrypted?", NOTHING_FITS),
    ("Does it support voice input?", NOTHING_FITS), ("Who is the author?", NOTHING_FITS),
    ("Can it send me emails?", NOTHING_FITS), ("Does it work on Windows?", NOTHING_FITS),
    # neither in the documents nor in their language
    ("What's the weather in Berlin?", NOTHING_FITS), ("Who are you?", NOTHING_FITS),
    ("Wie verbinde ich ein eigenes Modell?", NOTHING_FITS),
    # nothing to look for
    ("Hallo!", "Hi! Ask me about Chatkeep."), ("안녕하세요", "Hi! Ask me about Chatkeep."),
    ("こんにちは", "Hi! Ask me about Chatkeep."), ("Merci beaucoup", "Hi! Ask me about Chatkeep."),
]


@pytest.mark.parametrize(("question", "said"), QUESTIONS, ids=[question for question, _ in QUESTIONS])
def test_the_demo_answers(demo: Demo, question: str, said: str) -> None:
    text, passages = demo(question)
    assert said in " ".join(text.split())
    for quote, n in re.findall(r"(.+?)\n? \[ID:(\d+)\](?:\n\n|$)", text, re.DOTALL):
        assert quote in passages[int(n)]


@pytest.mark.parametrize(("question", "example"), [
    ("Where are the references of an answer kept?", "session.ask("), ("How do I connect to PostgreSQL?", "curl"),
])
def test_an_example_that_asks_the_question_is_no_answer_to_it(demo: Demo, question: str, example: str) -> None:
    text, passages = demo(question)
    assert any(question in passage for passage in passages)
    assert example not in text
