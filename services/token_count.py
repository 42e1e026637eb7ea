"""Token counts where no model tells them: every model has a tokenizer of its own, so this is an estimate."""

_BYTES = 4  # of UTF-8 a token: near enough for words and for Chinese


def estimate_tokens(text: str) -> int:
    """About how many tokens a text has; 0 for the empty one only."""
    return -(-len(text.encode()) // _BYTES)
