"""Every option of ``vllm serve``, by release: what its command line accepts and in which form.

The facts are ``data/vllm/flags.json``, read from the parsers of 28 releases. A release between two of
them knows what either of its neighbours knows, so that a flag is called unknown only when it surely is.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from kvroom.errors import UsageError
from kvroom.vllm.releases import Release, parse_release

SWITCHES = frozenset({"switch", "true"})
"""Forms that take no value."""
LISTS = frozenset({"strs", "ints"})
"""Forms that take all values up to the next option."""


@dataclass(frozen=True, slots=True)
class Flag:
    """One option of one release."""

    name: str
    """vLLM's argument name, e.g. ``max_model_len``."""
    form: str
    """``switch`` (has a negation), ``true``, ``bool_text``, ``int``, ``human_int``, ``human_int_or_auto``,
    ``float``, ``str``, ``opt_str``, ``json``, ``json_or_str``, ``ints`` or ``strs``."""
    options: tuple[str, ...]
    """Spellings, the long one first."""
    negations: tuple[str, ...] = ()
    choices: tuple[str, ...] = ()
    """Values allowed; empty when any is."""

    @property
    def takes_value(self) -> bool:
        """Whether the option must or may be followed by a value."""
        return self.form not in SWITCHES


@dataclass(frozen=True, slots=True)
class FlagTable:
    """The options of one release, by spelling and by name."""

    release: Release
    by_option: Mapping[str, tuple[Flag, bool]]
    """Spelling to (flag, whether this spelling negates it)."""
    by_name: Mapping[str, Flag]
    long_options: tuple[str, ...]
    """All long spellings, sorted, for unambiguous abbreviations."""

    def find(self, option: str) -> tuple[Flag, bool] | None:
        """The flag that ``option`` spells or unambiguously abbreviates, and whether it is negated; else None.

        Raises UsageError when an abbreviation fits several options (argparse refuses it too).
        """
        found = self.by_option.get(option)
        if found is not None or not option.startswith("--") or len(option) < 4:
            return found
        start = bisect_left(self.long_options, option)
        fits = []
        for candidate in self.long_options[start:]:
            if not candidate.startswith(option):
                break
            fits.append(candidate)
        if not fits:
            return None
        if len({self.by_option[fit] for fit in fits}) > 1:
            raise UsageError(
                f"{option} could be {', '.join(fits[:6])}{', ...' if len(fits) > 6 else ''}.",
                "Write the whole flag.",
            )
        return self.by_option[fits[0]]


@cache
def _catalogue() -> tuple[tuple[Release, ...], dict[str, list[dict[str, Any]]]]:
    data = json.loads(files("kvroom.data.vllm").joinpath("flags.json").read_text("utf-8"))
    return tuple(parse_release(text) for text in data["releases"]), data["flags"]


@cache
def _spans() -> dict[str, tuple[tuple[Release, Release | None, Flag], ...]]:
    """Per name, each form with the first and the last release that was seen to have it."""
    spans: dict[str, tuple[tuple[Release, Release | None, Flag], ...]] = {}
    for name, entries in _catalogue()[1].items():
        rows = []
        for entry in entries:
            options = tuple(entry["opts"])
            negations: tuple[str, ...] = ()
            if entry["form"] == "switch":
                negations = tuple(entry.get("no") or (f"--no-{o[2:]}" for o in options if o.startswith("--")))
            choices = tuple(str(choice) for choice in entry.get("choices", ()))
            flag = Flag(name, entry["form"], options, negations, choices)
            until = parse_release(entry["until"]) if "until" in entry else None
            rows.append((parse_release(entry["since"]), until, flag))
        spans[name] = tuple(rows)
    return spans


def _known_in(release: Release) -> dict[str, Flag]:
    """The flags of one release that was read, by name."""
    known = {}
    for name, rows in _spans().items():
        for since, until, flag in rows:
            if since <= release and (until is None or release <= until):
                known[name] = flag
    return known


def _neighbours(release: Release) -> tuple[Release, ...]:
    """The read releases that stand for ``release``, the one to believe first."""
    read = _catalogue()[0]
    if release in read:
        return (release,)
    below = [r for r in read if r < release]
    above = [r for r in read if r > release]
    if not below or not above:
        return (below[-1],) if below else (above[0],)
    pair = (below[-1], above[0])
    same_series = pair[1][:2] == release[:2] and pair[0][:2] != release[:2]
    return pair[::-1] if same_series else pair


@cache
def flags_for(release: Release) -> FlagTable:
    """The options that ``vllm serve`` of ``release`` accepts."""
    by_name: dict[str, Flag] = {}
    by_option: dict[str, tuple[Flag, bool]] = {}
    for read in _neighbours(release):
        for name, flag in _known_in(read).items():
            by_name.setdefault(name, flag)
            for option in flag.options:
                by_option.setdefault(option, (flag, False))
            for option in flag.negations:
                by_option.setdefault(option, (flag, True))
    long_options = tuple(sorted(option for option in by_option if option.startswith("--")))
    return FlagTable(release, by_option, by_name, long_options)


@cache
def _lifetimes() -> dict[str, tuple[Release, Release | None, Flag]]:
    lives: dict[str, tuple[Release, Release | None, Flag]] = {}
    for rows in _spans().values():
        for since, until, flag in rows:
            for option in (*flag.options, *flag.negations):
                first = lives[option][0] if option in lives else since
                lives[option] = (min(first, since), until, flag)
    return lives


def lifetime(option: str) -> tuple[Release, Release | None, Flag] | None:
    """(first, last, flag) of the releases with ``option``, last None while it exists; None if none had it."""
    return _lifetimes().get(option)


def nearest(option: str, table: FlagTable) -> str | None:
    """The option of ``table`` that ``option`` most looks like, or None."""
    from difflib import get_close_matches

    if len(option) > 60:
        return None
    close = get_close_matches(option, table.long_options, n=1, cutoff=0.75)
    return close[0] if close else None


def explain_unknown(option: str, release: Release) -> str:
    """One sentence on an option that ``release`` lacks: when it existed, else its nearest spelling."""
    key = spelling(option.split("=", 1)[0]).split(".", 1)[0]
    life = lifetime(key)
    if life is not None:
        since, until, _ = life
        if until is not None and release > until:
            return f"vLLM {release} has no {key}: it was removed after {until}."
        return f"vLLM {release} has no {key}: it came with {since}."
    close = nearest(key, flags_for(release))
    return f"vLLM {release} has no {key}{f'; did you mean {close}?' if close else '.'}"


def spelling(option: str) -> str:
    """``option`` with the dashes that vLLM reads for underscores, in front of the first dot only."""
    if not option.startswith("--") or "_" not in option:
        return option
    head, dot, rest = option.partition(".")
    return head.replace("_", "-") + dot + rest
