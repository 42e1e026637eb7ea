"""The questions that retrieval is judged by, each with the passage that answers it."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from services.knowledge.datasets import DatasetService
from services.knowledge.ingestion import add_text
from services.principal import Principal
from services.rag.embeddings import EmbeddingModel

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
HANDBOOKS = sorted(path.name for path in (HERE / "handbooks").iterdir())
DOCS = ["README.md", "CHANGELOG.md", "CONTRIBUTING.md",
        *(str(path.relative_to(ROOT)) for path in sorted((ROOT / "docs").rglob("*.md")))]
LIBRARIES = {name: [name] for name in HANDBOOKS} | {"docs": DOCS}  # a chat's dataset each


@dataclass(frozen=True)
class Asked:
    """`paraphrase`: in words that the passage doesn't use. `language` is that of both. `also`: other passages of the
    library that answer the question by themselves; which ones, somebody said who had read all and searched nothing."""

    document: str
    language: str
    question: str
    passage: str
    paraphrase: bool
    also: Sequence[str] = ()

    @property
    def library(self) -> str:
        return self.document if self.document in LIBRARIES else "docs"

    def is_answered_by(self, text: str) -> bool:
        return any(passage in text for passage in (self.passage, *self.also))


QUESTIONS = [
    Asked(**item) for n in (1, 2) for item in json.loads((HERE / f"questions-{n}.json").read_text("utf-8"))
]


def text_of(document: str) -> str:
    folder = HERE / "handbooks" if document in HANDBOOKS else ROOT
    return (folder / document).read_text("utf-8")


def fill(principal: Principal, embedding: EmbeddingModel | None = None) -> dict[str, str]:
    """A dataset for each library; their ids by its name."""
    name = embedding.name if embedding else ""
    ids = {library: DatasetService.create(principal, library, embedding_model=name).id for library in LIBRARIES}
    for library, documents in LIBRARIES.items():
        for document in documents:
            add_text(principal, ids[library], document, text_of(document), embedding=embedding)
    return ids
