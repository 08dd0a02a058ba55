"""Cutting a ``vllm serve`` command line into items: an option with its values, or a positional word.

The rules are argparse's and those of vLLM's FlexibleArgumentParser: underscores are dashes, long
options may be abbreviated, ``--name.key value`` sets one key of a JSON option, ``-O3`` is an
optimisation level. Nothing is interpreted here but where each item begins and ends.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from kvroom.errors import UsageError
from kvroom.vllm.flags import LISTS, SWITCHES, Flag, FlagTable, lifetime, nearest, spelling
from kvroom.vllm.rules import Rules

_NEGATIVE_NUMBER = re.compile(r"-\d+$|-\d*\.\d+$", re.ASCII)
_MAX_TOKENS = 1_000_000
_MAX_UNKNOWN = 100


@dataclass(frozen=True, slots=True)
class Item:
    """One item of a command line, ``tokens[start:end]``."""

    kind: str
    """``flag``, ``dotted`` (one key of a JSON option), ``positional`` or ``unknown``."""
    option: str
    """The option as vLLM spells it (dashes), without value; the word itself for a positional."""
    values: tuple[str, ...]
    start: int
    end: int
    flag: Flag | None = None
    negated: bool = False
    keys: tuple[str, ...] = ()
    """Path below a dotted option."""
    adds: bool = False
    """``--name.key+``: the value is a list to append."""


def is_option(token: str) -> bool:
    """Whether argparse would read ``token`` as an option rather than as a value.

    >>> [is_option(t) for t in ("--tp", "-tp", "-1", "-", "a", "-x y")]
    [True, True, False, False, False, False]
    """
    return (
        len(token) > 1 and token[0] == "-" and not _NEGATIVE_NUMBER.match(token) and " " not in token.split("=", 1)[0]
    )


def read_items(tokens: Sequence[str], table: FlagTable, rules: Rules) -> list[Item]:
    """The items of ``tokens``, which follow ``vllm serve``, in order.

    Raises UsageError for an option without its value and for an ambiguous abbreviation.
    """
    if len(tokens) > _MAX_TOKENS:
        raise UsageError(f"The command has {len(tokens):,} words.", f"At most {_MAX_TOKENS:,} are read.")
    items: list[Item] = []
    at = unknown = 0
    count = len(tokens)
    while at < count:
        token = tokens[at]
        if token == "--":  # noqa: S105
            items += [Item("positional", word, (), n, n + 1) for n, word in enumerate(tokens[at + 1 :], at + 1)]
            break
        if is_option(token):
            item = _read_option(tokens, at, table, rules)
            unknown += item.kind == "unknown"
            if unknown > _MAX_UNKNOWN:
                raise UsageError(
                    f"More than {_MAX_UNKNOWN} options are none of vLLM {table.release}'s.",
                    "Is this a vllm serve command?",
                )
        else:
            item = Item("positional", token, (), at, at + 1)
        items.append(item)
        at = item.end
    return items


def _read_option(tokens: Sequence[str], at: int, table: FlagTable, rules: Rules) -> Item:
    token = tokens[at]
    if token.startswith("-O"):
        item = _read_dash_o(tokens, at, table, rules)
        if item is not None:
            return item
    name, equals, attached = token.partition("=")
    option = spelling(name)
    if "." in option and rules["dotted_arguments"]:
        return _read_dotted(tokens, at, option, attached if equals else None, table)
    found = table.find(option)
    if found is None and not equals and not option.startswith("--"):
        found, option, attached, equals = _short_with_value(option, table)
    if found is None:
        return _read_unknown(tokens, at, option, bool(equals), table)
    flag, negated = found
    if flag.form in SWITCHES:
        if equals:
            raise UsageError(
                f"{option} takes no value, but '={attached[:40]}' follows it.",
                f"Write {option} alone" + (f" or {flag.negations[0]}." if flag.negations else "."),
            )
        return Item("flag", option, (), at, at + 1, flag, negated)
    if equals:
        return Item("flag", option, (attached,), at, at + 1, flag)
    end = _values_end(tokens, at + 1, flag.form)
    if end == at + 1 and flag.form != "opt_str":
        raise UsageError(f"{option} needs a value, but none follows it.", f"Write {option} VALUE.")
    return Item("flag", option, tuple(tokens[at + 1 : end]), at, end, flag)


def _values_end(tokens: Sequence[str], start: int, form: str) -> int:
    end = start
    limit = len(tokens) if form in LISTS else min(start + 1, len(tokens))
    while end < limit and not is_option(tokens[end]):
        end += 1
    return end


def _short_with_value(option: str, table: FlagTable) -> tuple[tuple[Flag, bool] | None, str, str, str]:
    """``-qawq`` as ``-q awq``: argparse lets a one-letter option carry its value."""
    found = table.by_option.get(option[:2])
    if found is not None and len(option) > 2 and found[0].takes_value:
        return found, option[:2], option[2:], "="
    return None, option, "", ""


def _read_dotted(tokens: Sequence[str], at: int, option: str, attached: str | None, table: FlagTable) -> Item:
    end = at + 1
    if attached is None:
        if end >= len(tokens):
            raise UsageError(f"{option} needs a value, but none follows it.", f"Write {option} VALUE.")
        attached = tokens[end]
        end += 1
    adds = option.endswith("+")
    head, *keys = option.removesuffix("+").split(".")
    found = table.find(head)
    if found is None or not all(keys):
        return Item("unknown", option, (attached,), at, end)
    flag = found[0]
    if flag.form not in ("json", "json_or_str"):
        raise UsageError(f"{option}: {head} has no keys to set.", f"Write {head} VALUE.")
    return Item("dotted", head, (attached,), at, end, flag, keys=tuple(keys), adds=adds)


def _read_dash_o(tokens: Sequence[str], at: int, table: FlagTable, rules: Rules) -> Item | None:
    """``-O3``, ``-O=3``, ``-O 3`` and ``-O.key value``; None when it is none of them in this release."""
    token = tokens[at]
    compilation = table.by_name.get("compilation_config")
    if token.startswith("-O."):
        if not rules["dash_o_dotted"] or compilation is None:
            raise UsageError(
                f"vLLM {table.release} reads '{token[:40]}' as an optimisation level.",
                "Write -cc" + token[2:42] + " instead.",
            )
        name, equals, attached = token.partition("=")
        return _read_dotted(tokens, at, "--compilation-config" + name[2:], attached if equals else None, table)
    end = at + 1
    if token == "-O":  # noqa: S105
        if end >= len(tokens) or is_option(tokens[end]):
            raise UsageError("-O needs a level, but none follows it.", "Write -O3.")
        if tokens[end] not in ("0", "1", "2", "3"):
            return None
        level = tokens[end]
        end += 1
    else:
        level = token[2:].removeprefix("=")
    meaning = rules["dash_o"]
    name = "optimization_level" if meaning == "optimization_level" else "compilation_config"
    flag = table.by_name.get(name)
    if flag is None:
        return None
    if level not in ("0", "1", "2", "3"):
        raise UsageError(f"-O: '{level[:40]}' is not allowed.", "Allowed: 0, 1, 2, 3.")
    if name == "optimization_level":
        return Item("flag", flag.options[0], (level,), at, end, flag)
    return Item("dotted", flag.options[0], (level,), at, end, flag, keys=(meaning,))


def _read_unknown(tokens: Sequence[str], at: int, option: str, attached: bool, table: FlagTable) -> Item:
    """An option that this release lacks, with the words that are most likely its own.

    What other releases or the nearest spelling say about its form decides; an option that nobody
    knows takes the next word, so that the word is not taken for the model.
    """
    if attached:
        return Item("unknown", option, (), at, at + 1)
    life = lifetime(option)
    form = life[2].form if life else None
    if form is None:
        close = nearest(option, table)
        form = table.by_option[close][0].form if close else "str"
    end = at + 1 if form in SWITCHES else _values_end(tokens, at + 1, form)
    return Item("unknown", option, tuple(tokens[at + 1 : end]), at, end)
