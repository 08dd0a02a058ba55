"""A ``vllm serve`` command line written again: as it was with some flags changed, or from EngineArgs."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from kvroom.errors import UsageError
from kvroom.vllm.args import EngineArgs
from kvroom.vllm.flags import LISTS, FlagTable, flags_for
from kvroom.vllm.items import is_option, read_items
from kvroom.vllm.releases import Release
from kvroom.vllm.rules import rules_for


def render_command(
    tokens: Sequence[str],
    *,
    release: Release,
    set_flags: Mapping[str, Any] | None = None,
    unset: Collection[str] = (),
) -> list[str]:
    """The words after ``vllm serve`` with the arguments in ``set_flags`` given and those in ``unset`` gone.

    Arguments are named as in EngineArgs (``max_model_len``); the other words stay as and where they were.
    A changed flag stays in its place, a new one goes to the end. Raises UsageError for an argument that
    the release does not have.

    >>> render_command(["m", "-tp", "2"], release=Release(0, 28, 0), set_flags={"tensor_parallel_size": 4})
    ['m', '--tensor-parallel-size', '4']
    """
    table = flags_for(release)
    wanted = {name: flag_words(name, value, table) for name, value in (set_flags or {}).items()}
    items = read_items(tokens, table, rules_for(release))
    last = {item.flag.name: item for item in items if item.flag is not None}
    front: list[str] = []
    words: list[str] = []
    after_list = False
    end = tokens.index("--") if "--" in tokens else len(tokens)
    for item in items:
        if item.start > end:
            break
        name = item.flag.name if item.flag is not None else ""
        if name in wanted and last[name] is item:
            written = wanted.pop(name)
        elif name and (name in unset or name in (set_flags or {})):
            written = []
        else:
            written = list(tokens[item.start : item.end])
        if item.kind == "positional" and after_list:
            front += written
        elif written:
            words += written
            after_list = item.flag is not None and item.flag.form in LISTS
    for added in wanted.values():
        words += added
    return [*front, *words, *tokens[end:]]


def flag_words(name: str, value: Any, table: FlagTable) -> list[str]:
    """The words that give argument ``name`` the ``value`` in the release of ``table``; none for None.

    Raises UsageError when the release has no such argument, or it cannot be switched off.
    """
    flag = table.by_name.get(name)
    if flag is None:
        raise UsageError(f"vLLM {table.release} has no --{name.replace('_', '-')}.", "Leave it out.")
    option = flag.options[0]
    if value is None:
        return []
    if flag.form in ("switch", "true"):
        if value:
            return [option]
        if not flag.negations:
            return []
        return [flag.negations[0]]
    if isinstance(value, bool):
        return [option] if flag.form == "opt_str" else [option, str(value).lower()]
    if flag.form in ("strs", "ints"):
        return [option, *(str(item) for item in value)]
    text = json.dumps(value) if isinstance(value, dict | list) else str(value)
    if is_option(text):
        return [f"{option}={text}"]
    return [option, text]


def render_args(args: EngineArgs, release: Release) -> list[str]:
    """The words after ``vllm serve`` that ``parse_serve_args`` reads back as ``args``."""
    table = flags_for(release)
    words = [args.model] if args.model and not is_option(args.model) else []
    if args.model and not words:
        words = [f"--model={args.model}"]
    for name, value in args.given.items():
        words += flag_words(name, value, table)
    return [*words, *args.passed, *args.unknown]
