"""Greetings and thanks, which a model that can only quote has nothing to say to."""

import re
from collections.abc import Iterable

from db.text_index import search_words

_GREETINGS = """
    hi|hello|hey|hiya|howdy|greetings|good morning|good afternoon|good evening|good day
    how are you|how s it going|whats up|what s up
    there|all|everyone|everybody|again|today|thanks|thank you|thx|ty|cheers|many thanks|thanks a lot
    thank you very much|thank you so much|so much|very much|a lot
    hallo|hi zusammen|zusammen|guten tag|guten morgen|guten abend|moin|moin moin|servus|grüß gott|gruss gott
    grüezi|wie geht es dir|wie geht es ihnen|wie gehts|wie geht s|danke|danke schön|dankeschön|danke sehr
    vielen dank|besten dank|herzlichen dank|tausend dank
    bonjour|bonsoir|salut|coucou|ça va|comment ça va|comment allez vous|merci|merci beaucoup|merci bien
    mille mercis|à tous
    hola|buenos días|buenas tardes|buenas noches|buenas|buen día|qué tal|cómo estás|cómo está|gracias
    muchas gracias|mil gracias|a todos
    你好|您好|你们好|大家好|嗨|哈喽|哈啰|早|早安|早上好|上午好|中午好|下午好|晚上好|你好吗|你好啊|谢谢|谢谢你|谢谢您|多谢|感谢|非常感谢
    謝謝|謝謝你|謝謝您|多謝|你們好
    こんにちは|こんばんは|おはよう|おはようございます|やあ|もしもし|はじめまして|初めまして|お元気ですか|元気ですか|ありがとう
    ありがとうございます|ありがとうございました|どうもありがとう|どうもありがとうございます|どうも|感謝します
    안녕|안녕하세요|안녕하십니까|여보세요|반가워요|반갑습니다|좋은 아침
    좋은 아침이에요|잘 지내세요|고마워|고마워요|고맙습니다|감사합니다
    감사해요|정말 감사합니다|대단히 감사합니다
"""
_FILLERS = {"there", "all", "everyone", "everybody", "again", "today", "so much", "very much", "a lot", "zusammen"}


def _phrases(listed: Iterable[str]) -> str:
    return "|".join(sorted((" ".join(search_words(phrase)) for phrase in listed), key=len, reverse=True))


_ALL = [phrase for line in _GREETINGS.split("\n") for phrase in line.strip().split("|") if phrase]
_SMALL_TALK = re.compile(
    rf"(?:{_phrases(phrase for phrase in _ALL if phrase not in _FILLERS)})(?: (?:{_phrases(_ALL)})){{0,3}}"
)


def is_small_talk(text: str) -> bool:
    """Whether a text is a greeting or thanks and no more.

    In English, German, French, Spanish, Chinese, Japanese and Korean.
    """
    return len(text) <= 80 and _SMALL_TALK.fullmatch(" ".join(search_words(text))) is not None
