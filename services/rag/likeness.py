"""How alike two words are, across the inflections of English and German; no dictionary, so it may err a little."""

import functools

_ENDINGS = ("ing", "en", "es", "ed", "er", "e", "s", "n")
_LEAST = 3  # letters that a stem keeps
_SHARED, _REST = 5, 4  # letters that related words begin with, and may differ in after them
SAME, _RELATED = 0.95, 0.5  # what a word's other form counts, and what a related word


@functools.lru_cache(maxsize=16_384)
def stem(word: str) -> str:
    """A word (as `search_words` gives it) without its endings and its last letter's double."""
    if not word.isalpha():
        return word
    while ending := _ending(word):
        word = word.removesuffix(ending)
    return word[:-1] if len(word) > _LEAST and word[-1] == word[-2] else word


def _ending(word: str) -> str:
    endings = (end for end in _ENDINGS if word.endswith(end) and len(word) - len(end) >= _LEAST)
    return "" if word.endswith("ss") else next(endings, "")


@functools.lru_cache(maxsize=16_384)
def forms(word: str) -> tuple[str, ...]:
    """The word, and what else is made of its stem: `crash`, `crashes`, `crashed`, `crashing`, ..."""
    root = stem(word)
    if not word.isalpha() or len(root) < _LEAST:
        return (word,)
    made = (begin + ending for begin in (root, root + root[-1]) for ending in ("", *_ENDINGS))
    return tuple(dict.fromkeys([word, *(form for form in made if stem(form) == root)]))


def likeness(asked: str, word: str) -> float:
    """1 for the same word, 0.95 for another form of it, 0.5 for one that begins alike, else 0."""
    if asked == word:
        return 1.0
    if asked[:1] != word[:1]:  # nearly all of them
        return 0.0
    if stem(asked) == stem(word):
        return SAME
    shared = max(_SHARED, max(len(asked), len(word)) - _REST)
    return _RELATED if asked[:shared] == word[:shared] else 0.0
