"""What a question asks for, read from its form: which words to look for, a thing's definition, steps, a number.

Forms of English, German, Chinese and Japanese; of any other language the words alone count.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from db.text_index import search_words
from services.rag.likeness import SAME, likeness
from services.rag.retrievers import STOP_WORDS, question_words

_HOW_MUCH = (
    r"\bhow (?:long|many|much|large|big|often|fast|high|old|far)\b"
    r"|\bwie (?:lange?|viele?|oft|gross|hoch|weit|schnell|alt)\b"
)
_NUMBER = re.compile(_HOW_MUCH + "|多少|多久|多大|几个|幾個|いくつ|いくら|何[秒分個人回年]")
_STEPS = re.compile(
    r"\bhow (?:do|can|could|to|should|would|must|might)\b|\bcommands?\b|\bbefehle?\b|\bkommandos?\b"
    r"|^wie (?!lange?\b|viele?\b|oft\b|gross\b|hoch\b|weit\b|schnell\b|alt\b)"
    r"|怎么|怎麼|怎样|如何|命令|どうやって|どうすれば|コマンド"
)
_THING = re.compile(
    r"^(?:what|who)(?:['’]s| is| are| was| were) (.+)$|^what (?:does|do) (.+) (?:mean|do)$"
    r"|^(?:was|wer) (?:ist|sind|war|waren|bedeutet|heisst|macht|machen) (.+)$"
    r"|^什[么麼]是(.+)$|^(.+?)(?:是什[么麼]|とは何ですか|とは何|とは|って何ですか|って何)$"
)
# Words of the form, which the answer doesn't have.
_FORM = re.compile(
    rf"^what (?:happens|happened|does|do)\b|\bmean$|^was (?:passiert|geschieht|bedeutet|macht)\b|{_HOW_MUCH}"
)
_FILLERS = frozenset(search_words("""
    own use see get find anything something nothing everything anyone somebody always ever really actually
    exactly possible make take give want work works
    eigene eigenen eigener eigenes nutze nutzen verwende verwenden sehe sehen finde finden bekomme bekommen
    etwas nichts alles jemand immer wirklich genau möglich geht gehen mache machen funktioniert
"""))
_ARTICLES = frozenset(search_words("a an the this der die das ein eine"))
_COPULAS = frozenset(search_words("is are means was were ist sind bedeutet heißt war waren"))


@dataclass(frozen=True, slots=True)
class Asked:
    """`words` are those to look for, as `search_words` gives them; `subject` those of the thing whose
    definition is asked for, if one is; `steps` asks for commands, or says names only; `number` asks for how much
    of something."""

    words: tuple[str, ...]
    subject: tuple[str, ...]
    steps: bool
    number: bool


def asked_by(question: str) -> Asked:
    """What a question asks for."""
    form = " ".join(question.casefold().split()).strip(" ?？!.。")
    words = [word for word in question_words(_FORM.sub(" ", form)) if word not in STOP_WORDS]
    thing = _THING.search(form)
    subject = next(filter(None, thing.groups()), "") if thing else ""
    number = _NUMBER.search(form) is not None
    only_names = len(words) == len(search_words(form))  # `backup restore` asks for anything about it
    return Asked(
        tuple(word for word in words if word not in _FILLERS) or tuple(words),
        _without_article(search_words(subject)),
        steps=_STEPS.search(form) is not None or (only_names and not number), number=number,
    )


def begins_with(text: str, subject: Sequence[str]) -> bool:
    """Whether a sentence begins with the subject as a whole: `a_b is` doesn't begin with `a`."""
    words: list[str] = []
    for part in text.split():
        words += search_words(part)
        if len(_without_article(words)) >= len(subject):
            break
    own = _without_article(words)
    is_whole = len(own) == len(subject) or not subject[-1].isascii()  # without spaces nothing says where it ends
    return is_whole and all(likeness(asked, word) >= SAME for asked, word in zip(subject, own, strict=False))


def says_what_it_is(words: Sequence[str], subject: Sequence[str]) -> bool:
    """Whether a sentence that begins with the subject goes on with `is` or its like."""
    after = _without_article(words)[len(subject) :]
    return bool(after) and after[0] in _COPULAS


def _without_article(words: Sequence[str]) -> tuple[str, ...]:
    return tuple(words[1:] if words and words[0] in _ARTICLES else words)
