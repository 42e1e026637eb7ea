"""A passage with the question's words marked, as HTML that holds nothing else."""

import re
from html import escape

from db.text_index import search_words
from services.rag.retrievers import question_words

_WORDS = re.compile(r"\w+")


def highlighted(text: str, question: str) -> str:
    """The text, escaped, each word that the search compares with the question's inside `<em>`."""
    wanted = set(question_words(question))
    marked, at = [], 0
    for word in _WORDS.finditer(text):
        marked.append(escape(text[at : word.start()]))
        found = wanted & set(search_words(word[0]))
        marked.append(f"<em>{escape(word[0])}</em>" if found else escape(word[0]))
        at = word.end()
    return "".join([*marked, escape(text[at:])])
