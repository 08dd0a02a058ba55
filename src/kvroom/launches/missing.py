"""Values that a file leaves out: an error where they decide memory, nothing where they do not."""

from __future__ import annotations

from kvroom.errors import UsageError
from kvroom.launches.variables import Word
from kvroom.vllm.arguments import decides
from kvroom.vllm.flags import flags_for
from kvroom.vllm.items import read_items
from kvroom.vllm.rules import NEWEST, rules_for

_NAMES = frozenset({"served_model_name"})
"""Arguments that are kept for people and decide nothing."""


def need_known(words: list[Word], tokens: tuple[str, ...], line: int) -> None:
    """Raise UsageError for an unknown in a word that decides memory; a port or a key may stay unknown."""
    if not any(word.unknown for word in words):
        return
    for item in read_items(tokens, flags_for(NEWEST), rules_for(NEWEST)):
        if item.kind == "flag" and item.flag is not None and (item.flag.name in _NAMES or not decides(item.flag.name)):
            continue
        for word in words[item.start : item.end]:
            if not word.unknown:
                continue
            what = word.unknown[0]
            if what.startswith("{{"):
                raise UsageError(f"Line {line}: {item.option[:60]} needs {what[:200]}, which is not given.")
            named = item.option[:60] if item.kind != "positional" else "the command"
            if what[0] in "$`":
                raise UsageError(
                    f"Line {line}: {named} needs the output of {what}, and nothing is run here.",
                    "Write the value.",
                )
            raise UsageError(
                f"Line {line}: {named} needs the variable {what}, which is not set.",
                f"Set {what}, or write its value.",
            )
