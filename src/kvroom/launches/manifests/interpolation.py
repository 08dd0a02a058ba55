"""Compose's ``${NAME:-default}``, with the values of the ``.env`` file beside the compose file."""

from __future__ import annotations

import re
from collections.abc import Mapping

from kvroom.errors import UsageError
from kvroom.launches.variables import Word

_EXPANSION = re.compile(
    r"\$(?:(?P<escaped>\$)|(?P<name>[A-Za-z_]\w*)"
    r"|\{(?P<braced>[A-Za-z_]\w*)(?:(?P<operator>:?[-?+])(?P<word>(?:[^{}]|\{[^{}]*\})*))?\})",
    re.ASCII,
)
_LINE = re.compile(r"\s*(?:export\s+)?(?P<name>[A-Za-z_]\w*)\s*[=:]\s*(?P<value>.*?)\s*$", re.ASCII)
_COMMENT = re.compile(r"\s+#.*$")
_LONGEST = 100_000
_DEEPEST = 10


def read_dotenv(text: str) -> dict[str, str]:
    r"""The variables of a ``.env`` file; what is quoted keeps its blanks, and ``#`` begins a comment.

    >>> read_dotenv("# models\nMODEL='Qwen/Qwen3-8B'\nexport TP=2 # cards\nARGS=-tp ${TP}")
    {'MODEL': 'Qwen/Qwen3-8B', 'TP': '2', 'ARGS': '-tp 2'}
    """
    found: dict[str, str] = {}
    for row in text.splitlines():
        match = _LINE.match(row) if not row.lstrip().startswith("#") else None
        if match is None:
            continue
        value = match["value"]
        if len(value) > 1 and value[0] in "'\"" and value[-1] == value[0]:
            literal = value[0] == "'"
            value = value[1:-1]
        else:
            literal, value = False, _COMMENT.sub("", value)
        found[match["name"]] = value if literal else interpolated(value, found).text
    return found


def interpolated(text: str, known: Mapping[str, str], depth: int = 0) -> Word:
    """``text`` with the values of ``known`` put in; a name without a value or a default is what is unknown of it.

    Raises UsageError where the values make it longer than any command.

    >>> interpolated("${MODEL:-Qwen/Qwen3-8B} $TP $$HOME", {"TP": "2"}).text
    'Qwen/Qwen3-8B 2 $HOME'
    """
    if "$" not in text:
        return Word(text)
    unknown: list[str] = []

    def one(match: re.Match[str]) -> str:
        if match["escaped"]:
            return "$"
        name, operator = match["name"] or match["braced"], match["operator"] or ""
        value = known.get(name)
        is_set = value is not None and not (operator.startswith(":") and not value)
        if operator.endswith("+"):
            return _default(match["word"] or "", known, depth, unknown) if is_set else ""
        if is_set:
            return value or ""
        if operator.endswith("-"):
            return _default(match["word"] or "", known, depth, unknown)
        unknown.append(name)
        return match.group()

    pieces: list[str] = []
    at = length = 0
    for match in _EXPANSION.finditer(text):
        pieces += [text[at : match.start()], one(match)]
        at = match.end()
        length += len(pieces[-1])
        if length > _LONGEST:
            raise UsageError(
                f"The variables of the compose file make a text of more than {_LONGEST:,} characters.",
                "Write the values out.",
            )
    return Word("".join([*pieces, text[at:]]), tuple(dict.fromkeys(unknown)))


def _default(text: str, known: Mapping[str, str], depth: int, unknown: list[str]) -> str:
    if depth >= _DEEPEST:
        return text
    word = interpolated(text, known, depth + 1)
    unknown += word.unknown
    return word.text
