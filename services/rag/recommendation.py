"""Questions near a question: a model is asked for some; the built-in one names the headings it would quote from."""

import re
from collections.abc import Iterable, Sequence

import structlog

from services.errors import ModelFailure
from services.events import TextDelta
from services.knowledge.datasets import DatasetService
from services.principal import Principal
from services.rag.chat_models import ChatModel, ExtractiveChatModel, ModelRequest
from services.rag.retrievers import LexicalRetriever
from services.think_tags import without_thoughts

log = structlog.get_logger()

MOST = 10
SECONDS = 30.0  # a helper beside the answer: nobody waits longer for it
_MOST_CHARACTERS = 20_000  # of what a model writes; ten questions are far fewer
_PASSAGES = 30  # among which the headings are looked for

_SYSTEM = f"""\
Somebody reads documents by asking questions. You are given one of their questions. Write the {MOST} questions that \
they would most likely ask next: each about another side of the same subject, short, complete by itself, and in the \
language of the given question.

Write one question a line, numbered, and nothing else:
1. <question>
2. <question>"""
_NUMBERED = re.compile(r"^[ \t>*_-]*\d{1,2}[.)][ \t*_]*(?P<text>\S.*)$", re.M)


def related_questions(
    model: ChatModel, principal: Principal, question: str, dataset_ids: Sequence[str] | None = None
) -> list[str]:
    """At most ten. `dataset_ids` bounds where the built-in model looks; None is all of the principal's.

    Raises ModelFailure, after `SECONDS` at the latest.
    """
    if not question.strip():
        return []
    if isinstance(model, ExtractiveChatModel):
        return _distinct(question, _headings(principal, question, dataset_ids))
    return _distinct(question, parse(_asked(model, question)))


def parse(text: str) -> list[str]:
    """The texts of the numbered lines, thinking aside."""
    return [line["text"].replace("**", "").strip() for line in _NUMBERED.finditer(without_thoughts(text))]


def _asked(model: ChatModel, question: str) -> str:
    messages = [{"role": "system", "content": _SYSTEM}, {"role": "user", "content": question}]
    text = ""
    try:
        for event in model.stream(ModelRequest(messages, question, quote=False, seconds=SECONDS)):
            if isinstance(event, TextDelta):
                text += event.text
            if len(text) > _MOST_CHARACTERS:
                break
    except ModelFailure as wrong:
        log.warning("model failed", code=wrong.code, detail=wrong.detail)
        raise
    return text


def _headings(principal: Principal, question: str, wanted: Sequence[str] | None) -> list[str]:
    """The titles right above the passages that are nearest to the question, best first."""
    own = [dataset.id for dataset in DatasetService.list(principal)]
    searched = own if wanted is None else [id for id in own if id in wanted]
    passages = LexicalRetriever(principal.tenant_id, searched).retrieve(question, _PASSAGES)
    paths = (str(passage.metadata.get("heading") or "") for passage in passages)
    return [path.rpartition(" > ")[2].strip() for path in paths]


def _distinct(question: str, texts: Iterable[str]) -> list[str]:
    """Each text once, the question itself left out."""
    found = {text.casefold(): text for text in reversed(list(texts)) if text}
    found.pop(question.strip().casefold(), None)
    return list(reversed(found.values()))[:MOST]
