"""What an error of the command line says, and what the release would have taken instead."""

from __future__ import annotations

import re
from difflib import get_close_matches
from typing import TYPE_CHECKING

from kvroom.findings.refusals.common import short
from kvroom.vllm.environment import earlier, instead
from kvroom.vllm.flags import explain_unknown, flags_for, lifetime, nearest, spelling
from kvroom.vllm.rules import NEWEST

if TYPE_CHECKING:
    from kvroom.vllm.releases import Release

_CHOICE = re.compile(r"argument (\S{1,120}): invalid choice: ['\"]?([^'\"]{1,80})['\"]? \(choose from (.{1,2000})\)")
_VALUE = re.compile(r"argument (\S{1,120}): (.{1,300})")
_MOST = 3


def explained(problem: str, release: Release | None) -> tuple[str, str, list[str]]:
    """Title, reason and advice for argparse's ``problem``."""
    head, _, words = problem.partition("unrecognized arguments:")
    if words:
        return _unknown(words.split(), release)
    choice = _CHOICE.search(problem)
    if choice:
        option = _option(choice[1])
        near = get_close_matches(choice[2], re.findall(r"[\w.+-]{1,60}", choice[3]), n=1, cutoff=0.5)
        return (
            f"{option} does not take {short(choice[2])} in this release.",
            f"It takes {short(choice[3])}.",
            [f"{option} {near[0]}"] if near else [f"Choose one of the values above for {option}."],
        )
    value = _VALUE.search(problem)
    if value:
        option = _option(value[1])
        return f"{option} was refused: {short(value[2])}.", "", [f"Correct the value of {option}."]
    return f"The command line was refused: {short(head or problem)}.", "", ["Correct the command line."]


def _unknown(words: list[str], release: Release | None) -> tuple[str, str, list[str]]:
    options = [word for word in words if word.startswith("-") and not word[1:2].isdigit()]
    if not options:
        return (
            f"Words are left over on the command line: {short(' '.join(words))}.",
            "They belong to no option: a quote or a dash may be missing, or a value has a blank in it.",
            ["Put values with blanks or JSON into single quotes."],
        )
    keys = list(dict.fromkeys(spelling(word.split("=", 1)[0]) for word in options))
    title = f"This vLLM does not know {short(', '.join(keys))}."
    whys = [_why(key, release) for key in keys[:_MOST]]
    return title, " ".join(whys), [_cure(key, release) for key in keys[:_MOST]]


def _why(option: str, release: Release | None) -> str:
    if release is not None:
        return explain_unknown(option, release)
    life = lifetime(option.split(".", 1)[0])
    if life is None:
        return f"No release of vLLM has {option}."
    since, until, _ = life
    return f"{option} came with {since}" + (f" and was removed after {until}." if until else ".")


def _cure(option: str, release: Release | None) -> str:
    key = option.split(".", 1)[0]
    life = lifetime(key)
    if life is None:
        near = nearest(key, flags_for(release or NEWEST))
        return f"Write {near} in place of {option}." if near else f"Drop {option}."
    since, until, _ = life
    if until is not None and (release is None or release > until):
        return instead(key) or f"Drop {option}."
    if release is not None and release < since:
        return earlier(key) or f"Drop {option}, or take vLLM {since} or newer."
    return f"Drop {option}, or take a release that has it."


def _option(text: str) -> str:
    """The longest spelling of ``--quantization/-q``."""
    return max(text.split("/"), key=len)
