"""Where a chat model is asked twice: to make a question stand alone, and after a history that was too long."""

from collections.abc import Iterator
from dataclasses import replace

import structlog

from services.errors import ModelFailure
from services.events import ErrorCode, Event, Question, TextDelta
from services.messages import for_model
from services.rag.chat_models import ChatModel
from services.rag.prompts import ModelRequest

log = structlog.get_logger()

_STANDALONE = """\
Below is a conversation and the question that came last. Write that question once more so that it can be \
understood without the conversation: put names in the place of words that point back to it. Keep the \
question's language, add nothing that was not said, and write the question alone."""
_LONGEST = 2_000  # characters of a rewritten question; more is no question
_TURNS = 6  # messages of the conversation that are shown
_KEPT = 4  # one in so many messages is left of a history that was too long


def standalone_question(model: ChatModel, question: Question) -> str:
    """The question as it reads without its conversation, in the model's words; as it was asked, where it is the
    first one or the model fails."""
    said = for_model(question.history)[-_TURNS:]
    if not said:
        return question.text
    spoken = "\n".join(f"{message['role']}: {message['content']}" for message in said)
    request = ModelRequest(
        [
            {"role": "system", "content": _STANDALONE},
            {"role": "user", "content": f"{spoken}\n\nQuestion: {question.text}"},
        ],
        question.text, parameters={"temperature": 0.1}, quote=False,
    )
    try:
        written = "".join(event.text for event in model.stream(request) if isinstance(event, TextDelta)).strip()
    except ModelFailure as failure:
        log.warning("the question was not rewritten for retrieval", code=failure.code, detail=failure.detail)
        return question.text
    return written if 0 < len(written) <= _LONGEST else question.text


def stream_trimmed(model: ChatModel, request: ModelRequest) -> Iterator[Event]:
    """The model's events; once more with the end of the history alone, where it refuses the whole as too long."""
    events = model.stream(request)
    try:
        first = next(events, None)
    except ModelFailure as failure:
        shorter = _trimmed(request)
        if failure.code is not ErrorCode.CONTEXT_TOO_LONG or shorter is None:
            raise
        log.info("the history was too long for the model", messages=len(request.messages), kept=len(shorter.messages))
        events = model.stream(shorter)
        first = next(events, None)
    if first is not None:
        yield first
        yield from events


def _trimmed(request: ModelRequest) -> ModelRequest | None:
    """The system message, the last quarter of the conversation from a question on, the question; None if no less."""
    system = [message for message in request.messages if message["role"] == "system"]
    spoken = request.messages[len(system) :]
    kept = spoken[-max(len(spoken) // _KEPT, 1) :]
    while kept and kept[0]["role"] != "user":
        kept = kept[1:]
    return replace(request, messages=[*system, *kept]) if len(kept) < len(spoken) else None
