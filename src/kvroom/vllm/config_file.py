"""The YAML file of ``vllm serve --config`` as command-line words."""

from __future__ import annotations

import json
import re
from typing import Any

from kvroom.errors import UsageError
from kvroom.vllm.flags import FlagTable, spelling

LONGEST = 64_000
"""Characters of a file that are read: YAML is slow, and settings are short."""
_MOST_NODES = 100_000
_DEEPEST = 50
_BRACKET = re.compile(r"[\[\]{}]")


def config_tokens(text: str, path: str, table: FlagTable) -> list[str]:
    """The words that the file's settings stand for, in its order.

    ``true`` is the bare flag, ``false`` its negation where it has one, a list several values, a mapping
    JSON. Raises UsageError for text that is not YAML, not a mapping, or built to explode.
    Mirrors utils/argparse_utils.py: FlexibleArgumentParser.load_config_file.
    """
    try:
        return _words(_load(text, path), table)
    except ValueError:
        raise UsageError(f"{path} holds a number with thousands of digits.", "Correct the file.") from None


def _words(settings: dict[str, Any], table: FlagTable) -> list[str]:
    words: list[str] = []
    for key, value in settings.items():
        option = spelling(f"--{key}")
        if isinstance(value, bool):
            found = table.find(option)
            if value:
                words.append(option)
                if found is not None and found[0].form == "bool_text":
                    words.append("true")
            elif found is not None and found[0].negations:
                words.append(found[0].negations[0])
        elif isinstance(value, list):
            words += [option, *(_text(item) for item in value)] if value else []
        else:
            words += [option, _text(value)]
    return words


def _text(value: Any) -> str:
    return json.dumps(value, default=str) if isinstance(value, dict | list) else str(value)


def _load(text: str, path: str) -> dict[str, Any]:
    if len(text) > LONGEST:
        raise UsageError(f"{path} has {len(text):,} characters.", f"At most {LONGEST:,} are read.")
    depth = 0
    for bracket in _BRACKET.finditer(text):
        depth += 1 if bracket.group() in "[{" else -1
        if depth > _DEEPEST:
            raise UsageError(f"{path} is nested too deeply to be read.", "Give one setting a line.")
    import yaml

    try:
        loaded = yaml.safe_load(text)
    except RecursionError:
        raise UsageError(f"{path} is nested too deeply to be read.", "Give one setting a line.") from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f" (line {mark.line + 1})" if mark is not None else ""
        problem = getattr(error, "problem", None) or "it cannot be read"
        raise UsageError(f"{path} is not valid YAML{where}: {problem}.", "Correct the file.") from None
    except ValueError as error:
        raise UsageError(f"{path} has a value that YAML cannot hold: {error}.", "Correct the file.") from None
    if loaded is None:
        return {}
    if not isinstance(loaded, dict) or not all(isinstance(key, str) for key in loaded):
        raise UsageError(f"{path} is not a mapping of settings.", "Write lines such as 'tensor-parallel-size: 2'.")
    _measure(loaded, path)
    return loaded


def _measure(loaded: dict[str, Any], path: str) -> None:
    """Refuse a tree that aliases make larger or deeper than a settings file can be."""
    waiting: list[tuple[Any, int]] = [(loaded, 1)]
    seen = 0
    while waiting:
        node, depth = waiting.pop()
        seen += 1
        if seen > _MOST_NODES or depth > _DEEPEST:
            raise UsageError(f"{path} expands to too many or too deeply nested values.", "Write plain settings.")
        if isinstance(node, dict):
            waiting += [(child, depth + 1) for child in node.values()]
        elif isinstance(node, list):
            waiting += [(child, depth + 1) for child in node]
