"""A passage with the question's words marked, as HTML that holds nothing else."""

import re
from collections.abc import Collection
from html import escape

from db.text_index import search_words

_WORDS = re.compile(r"\w+")


def highlighted(text: str, wanted: Collection[str]) -> str:
    """The text, escaped, each word that the search compares with a `wanted` one inside `<em>`."""
    marked, at = [], 0
    for word in _WORDS.finditer(text):
        marked.append(escape(text[at : word.start()]))
        found = any(each in wanted for each in search_words(word[0]))
        marked.append(f"<em>{escape(word[0])}</em>" if found else escape(word[0]))
        at = word.end()
    return "".join([*marked, escape(text[at:])])
