"""Files and folders as ``kvroom check`` names them: what is read, and what is said where nothing is there."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kvroom.errors import KvroomError, UsageError, short
from kvroom.files import open_stream, reason, too_large
from kvroom.launches.files import LONGEST, decoded, files_in, found_in, is_manifest, launches_in, nothing_in
from kvroom.launches.launch import Found, Unread
from kvroom.plans.check import Item, check_found, check_text
from kvroom.plans.request import Request


@dataclass(frozen=True, slots=True)
class Checked:
    """What was checked, and how it is shown."""

    items: list[Item]
    files: bool = False
    """Whether it came from files, so that JSON is a list."""
    folder: bool = False
    """Whether a folder was given, so that text is one line a launch."""


def files(
    args: Sequence[str], env: Mapping[str, str], request: Request, models: Mapping[str, str], *, allow_none: bool
) -> Checked:
    """The items of ``args``; UsageError where nothing is there, unless ``allow_none``, or a script cannot be read."""
    items: list[Item] = []
    found: list[Found] = []
    folder = False
    read = 0
    if "" in args:
        raise UsageError("The name of a file is empty.", "A variable may be unset: name a file or a folder, or `.`.")
    for name in args:
        if name != "-" and Path(name).is_dir():
            folder = True
            names = [str(path) for path in files_in(Path(name))]
            read += len(names)
            found += [each for _, inside in launches_in(names) for each in inside]
            continue
        if allow_none:
            read += 1
            found += [each for _, inside in launches_in([name]) for each in inside]
            continue
        try:
            text = _read_file(name)
            inside = found_in(text, name) if is_manifest(name, text) else []
            if is_manifest(name, text) and not inside:
                raise nothing_in(name)
            found += inside
            if not inside:
                plans = check_text(text, env, request, name)
                items += [*check_found(found, env, request, models), *plans]
                found = []
        except KvroomError as error:
            if len(args) == 1:
                raise
            found.append(Unread(name, 1, error.problem.removeprefix(f"{name}: "), error.cure))
    items += check_found(found, env, request, models)
    if not items and not allow_none:
        raise UsageError(
            f"{short(args[0])} holds no launch of vLLM; {read:,} files were looked at.",
            "Give the folder of the manifests (.yaml, .yml, .json) and scripts (.sh).",
        )
    return Checked(items, True, folder or allow_none)


def assumed_models(items: Sequence[str]) -> dict[str, str]:
    """``--assume-model`` as a mapping: a path to its model, under the empty text the model of any path."""
    found = {}
    for item in items:
        place, equals, model = item.partition("=")
        if not item.strip() or (equals and not (place and model)):
            raise UsageError(f"--assume-model {short(item)}: not MODEL or PATH=MODEL.")
        found[place if equals else ""] = model if equals else item
    return found


def _read_file(name: str) -> str:
    """The text of a file, a pipe or (``-``) the standard input; UsageError where it cannot be had."""
    try:
        if name == "-":
            data = sys.stdin.buffer.read(LONGEST + 1)
        else:
            with open_stream(Path(name)) as file:
                data = file.read(LONGEST + 1)
        if len(data) > LONGEST:
            raise too_large(LONGEST)
        return decoded(data)
    except (OSError, ValueError) as error:
        shown = "The standard input" if name == "-" else short(name)
        raise UsageError(
            f"{shown} cannot be read: {reason(error)}.",
            "Give a text file with a launch command, or a command after `--`.",
        ) from None
