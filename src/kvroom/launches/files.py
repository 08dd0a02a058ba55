"""Files and folders to what they start. The one place here that reads a disk; nothing is followed in a circle."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from kvroom.errors import KvroomError, UsageError, short
from kvroom.files import read_limited, reason, too_large
from kvroom.launches.launch import Found, Launch, Unread
from kvroom.launches.manifests import concerns_vllm, read_manifest
from kvroom.launches.manifests.interpolation import read_dotenv
from kvroom.launches.read import read_command

LONGEST = 4_000_000
"""Bytes of a file that are looked at; what is longer is no launch script and no manifest of this kind."""
MANIFESTS = (".yaml", ".yml", ".json")
_SCRIPTS = (".sh", ".bash")
_LEFT_OUT = frozenset({"node_modules", "__pycache__", "venv", "site-packages"})
_MANIFEST_LINE = re.compile(
    r"^(?:apiVersion|kind|services|servingEngineSpec|x-[\w-]+)\s*:|^---\s*$|^\s*\{\s*\"(?:apiVersion|kind|services)\"",
    re.MULTILINE,
)
_MOST_FILES = 200_000


def is_manifest(name: str, text: str) -> bool:
    """Whether a file is a manifest rather than a script: by its name, else by how its lines begin."""
    return name.lower().endswith(MANIFESTS) or (
        not name.lower().endswith(_SCRIPTS) and _MANIFEST_LINE.search(text[:20_000]) is not None
    )


def files_in(folder: Path) -> list[Path]:
    """The manifests and shell scripts of ``folder``, sorted, each file once.

    Hidden folders and those of dependencies are left out. Links to folders are not followed; a link to a file
    is, unless the file itself is in the folder as well.
    """
    found: list[Path] = []
    seen: set[tuple[int, int]] = set()
    links: list[Path] = []
    for top, folders, names in os.walk(folder, followlinks=False):
        folders[:] = sorted(each for each in folders if not each.startswith(".") and each not in _LEFT_OUT)
        for name in sorted(names):
            if name.lower().endswith((*MANIFESTS, *_SCRIPTS)) and len(found) < _MOST_FILES:
                path = Path(top) / name
                (links if path.is_symlink() else found).append(path)
    for path in [*found, *links]:
        try:
            state = path.stat()
        except OSError:  # a link that leads nowhere, or in a circle
            continue
        if (state.st_dev, state.st_ino) in seen:
            if path in links:
                links.remove(path)
            continue
        seen.add((state.st_dev, state.st_ino))
    return sorted([*found, *(link for link in links if link.is_file())])


def launches_in(names: Sequence[str]) -> Iterator[tuple[str, list[Found]]]:
    """What each file of ``names`` starts; a file that cannot be read is one of the items.

    For files that were found in a folder: one that is no text, or does not speak of vLLM, starts nothing.
    """
    for name in names:
        try:
            data = read_limited(Path(name), LONGEST)
        except (OSError, ValueError) as error:
            if isinstance(error, OSError) and error.strerror == too_large(LONGEST).strerror:
                yield name, _too_long(name)
            else:
                yield name, [Unread(name, 1, f"It cannot be read: {reason(error)}.")]
            continue
        if b"\0" in data[:8000] and not data.startswith((b"\xff\xfe", b"\xfe\xff")):
            yield name, []
            continue
        try:
            text = decoded(data)
        except UnicodeError:
            speaks = concerns_vllm(data.decode("latin-1"))
            yield name, [Unread(name, 1, "It is not UTF-8 text.", "Save it as UTF-8.")] if speaks else []
            continue
        yield name, found_in(text, name) if concerns_vllm(text) else []


def _too_long(name: str) -> list[Found]:
    """What is said of a file above LONGEST: nothing where its beginning does not speak of vLLM."""
    with Path(name).open("rb") as file:
        beginning = file.read(LONGEST).decode("latin-1")
    if not concerns_vllm(beginning) or "\nkind: CustomResourceDefinition" in beginning:
        return []
    return [Unread(name, 1, f"It has more than {LONGEST:,} bytes, and was not read.", "Split it.")]


def decoded(data: bytes) -> str:
    """The text of ``data``: UTF-8, or UTF-16 with its mark. Raises UnicodeError for anything else."""
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        return data.decode("utf-16")
    return data.decode("utf-8-sig")


def found_in(text: str, name: str) -> list[Found]:
    """What the file ``name`` with ``text`` starts; a script's problem is one of the items."""
    if is_manifest(name, text):
        return read_manifest(text.replace("\r\n", "\n"), name, variables=_beside(text, name))
    try:
        launches: Sequence[Launch] = read_command(text, source=name)
    except KvroomError as error:
        if error.problem.endswith("starts no vLLM server."):
            return []
        match = re.match(r"Line (\d+): ", error.problem)
        return [
            Unread(
                name, int(match[1]) if match else 1, error.problem.removeprefix(match[0] if match else ""), error.cure
            )
        ]
    return list(launches)


def _beside(text: str, name: str) -> dict[str, str]:
    """The variables of the ``.env`` file beside a compose file; none where there is none."""
    if "$" not in text or not re.search(r"^[\"']?services[\"']?\s*:", text, re.MULTILINE) or name in {"", "-"}:
        return {}
    try:
        return read_dotenv(read_limited(Path(name).parent / ".env", 1_000_000).decode("utf-8-sig"))
    except (OSError, ValueError):
        return {}


def nothing_in(name: str) -> UsageError:
    """The error of a file that starts no server."""
    return UsageError(
        f"{'The standard input' if name == '-' else short(name)} starts no vLLM server.",
        "Give a script, a compose file or a manifest that does; docs/manifests.md lists what is read.",
    )
