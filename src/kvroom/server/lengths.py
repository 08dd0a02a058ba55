"""Prompts of an exact number of tokens, different from each other from their first token on."""

from __future__ import annotations

import random
from collections.abc import Sequence

from kvroom.server.client import Client
from kvroom.server.outcome import Failed

_TEXT = (
    "A server keeps the keys and values of every token that it has read, so that the next one costs little. "
    "How many fit is decided when it starts: what the weights leave is cut into blocks, and requests take them "
    "one after another. When none is left, somebody waits, or is sent back and starts again. Long answers and "
    "many readers need the same room. It is better to know beforehand who gets it, and when the last one goes."
)
_PLAIN = range(100, 250)
"""Ids that are ordinary text in the vocabularies known: bytes, letters or short words, nothing special."""
_FEWEST = 30
_TRIES = 8


class Prompts:
    """Makes prompts for one served model."""

    def __init__(self, ids: Sequence[int], words: Sequence[str], source: str, seed: int = 0) -> None:
        self._ids, self._words = tuple(ids), tuple(words)
        self._random = random.Random(seed)  # noqa: S311 - load, not secrets
        self.source = source
        """How the tokens are known: ``tokenizer`` (the server's own), ``plain ids``, or ``text``."""

    @property
    def exact(self) -> bool:
        """Whether a prompt has exactly the tokens asked for."""
        return self.source != "text"

    def make(self, tokens: int) -> tuple[int, ...] | str:
        """A prompt of ``tokens`` tokens; of about that many where the server takes text alone."""
        if self.exact:
            return tuple(self._random.choices(self._ids, k=tokens))
        return self.text(tokens)

    def text(self, words: int) -> str:
        """So many words of plain text, in another order each time."""
        return " ".join(self._random.choices(self._words, k=words))

    def with_text(self) -> Prompts:
        """The same for a server that takes no token ids."""
        return Prompts(self._ids, self._words, "text")


async def prompts_for(client: Client, model: str, seed: int = 0) -> Prompts:
    """Prompts of ordinary tokens of the model's own vocabulary where ``/tokenize`` tells them, else of plain ids."""
    ids = await tokenized(client, {"model": model, "prompt": _TEXT, "add_special_tokens": False})
    words = _TEXT.replace(",", "").replace(".", "").replace(":", "").split()
    if ids and len(set(ids)) >= _FEWEST:
        return Prompts(sorted(set(ids)), words, "tokenizer", seed)
    return Prompts(_PLAIN, words, "plain ids", seed)


async def tokenized(client: Client, body: dict[str, object]) -> list[int] | None:
    """The token ids that ``/tokenize`` answers; None where there is no such thing."""
    try:
        answer = await client.ask("POST", "/tokenize", body)
    except Failed:
        return None
    data = answer.json()
    ids = data.get("tokens") if answer.status == 200 and isinstance(data, dict) else None
    if not isinstance(ids, list) or not all(isinstance(each, int) and 0 <= each < 2**31 for each in ids):
        return None
    return ids


async def chat_text(client: Client, model: str, prompts: Prompts, tokens: int) -> tuple[str, int | None]:
    """A message that is ``tokens`` tokens within the model's chat template, as near as it comes, and what it is.

    None where ``/tokenize`` does not tell: the answer's ``usage`` will. Words are added or taken away until
    the count is met; templates and merges of words make that a search.
    """
    words = prompts.text(max(tokens, 1)).split()
    best: tuple[str, int] | None = None
    count = max(tokens, 1)
    for _ in range(_TRIES):
        text = " ".join((words * (count // len(words) + 1))[:count])
        ids = await tokenized(client, {"model": model, "messages": [{"role": "user", "content": text}]})
        if ids is None:
            return text, None
        if best is None or abs(len(ids) - tokens) < abs(best[1] - tokens):
            best = (text, len(ids))
        if len(ids) == tokens:
            break
        off = tokens - len(ids)
        per_word = max(len(ids) / count, 1.0)
        count = max(count + (int(off / per_word) or (1 if off > 0 else -1)), 1)
    assert best is not None
    return best
