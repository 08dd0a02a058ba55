"""What people have (a command, a script, a container start) to launches. Nothing is ever run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from kvroom.errors import UsageError, short
from kvroom.launches.containers import RUNNERS, ContainerRun, image_version, read_run
from kvroom.launches.launch import Launch
from kvroom.launches.missing import need_known
from kvroom.launches.programs import is_program, program_name, requirement, server_words, strip_prefixes
from kvroom.launches.shell import Command, RawWord, read_commands
from kvroom.launches.variables import ASSIGNMENT, Variables, Word

_KEYWORDS = frozenset({"then", "do", "else", "elif", "if", "while", "until", "{", "}", "!", "$", "time", "("})
_DECLARE = frozenset({"export", "local", "declare", "typeset", "readonly"})
_SHELLS = frozenset({"bash", "sh", "zsh", "dash"})
_DEEPEST = 5
_FORMS = "vllm serve, python -m vllm.entrypoints.openai.api_server, or docker run with a vLLM image"


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a command stands: its source, its line, and how many shells are around it."""

    source: str
    line: int = 1
    depth: int = 0


def read_command(text: str, *, source: str = "", variables: Mapping[str, str] | None = None) -> list[Launch]:
    """The vLLM launches in ``text``: one command or a whole shell script, in order.

    ``variables`` are known before the text begins. Raises UsageError when the text starts no vLLM server,
    a quote is not closed, or a launch needs a variable or a command's output that is not known here.
    """
    found = _read_text(text, _Place(source), Variables.of(variables or {}))
    if not found:
        shown = "The standard input" if source == "-" else short(source) or "The text"
        cure = f"Give a command with {_FORMS}."
        raise UsageError(f"{shown} starts no vLLM server.", cure)
    return found


def read_words(words: Sequence[str], *, source: str = "") -> list[Launch]:
    """The launches of a command whose words the shell has cut (``kvroom check -- vllm serve ...``)."""
    found = _from_words([Word(word) for word in words], _Place(source), Variables(), {})
    if not found:
        shown = " ".join(words)[:60]
        raise UsageError(f"'{shown}' starts no vLLM server.", f"Give a command with {_FORMS}.")
    return found


def starts_command(words: Sequence[str]) -> bool:
    """Whether ``words`` begin as launches do (``docker``, ``./venv/bin/python``, ``X=1``), so are no files' names."""
    first = Word(words[0])
    return len(words) > 1 and (is_program(first) or program_name(first) in RUNNERS | _SHELLS)


def _read_text(text: str, place: _Place, state: Variables) -> list[Launch]:
    launches: list[Launch] = []
    version: str | None = None
    for command in read_commands(text, place.line):
        words, leading = _run_builtins(command, state)
        if not words:
            continue
        expanded = [word for raw in words for word in state.expand(raw)]
        first = words[0].literal()
        if "pip" in first or first == "uv":
            version = requirement(expanded) or version
        here = replace(place, line=command.line)
        launches += [
            launch if launch.version_hint else replace(launch, version_hint=version)
            for launch in _from_words(expanded, here, state, leading)
        ]
    return launches


def _run_builtins(command: Command, state: Variables) -> tuple[list[RawWord], dict[str, Word]]:
    """The words of the program that ``command`` starts and the variables set for it alone.

    Assignments, ``export`` and their like are carried out on ``state`` and leave no words.
    """
    words = command.words
    while words and words[0].array is None and words[0].literal() in _KEYWORDS:
        words = words[1:]
    leading: dict[str, Word] = {}
    at = 0
    while at < len(words) and (words[at].array is not None or _assigns(words[at])):
        at += 1
    if at == len(words):
        for raw in words:
            state.assign(raw)
        return [], {}
    own = state.copy() if at else state
    for raw in words[:at]:
        if raw.array is None and own.assign(raw):
            name = raw.literal().split("=", 1)[0].rstrip("+")
            leading[name] = own.values[name]
    words = words[at:]
    first = words[0].literal()
    if first in _DECLARE:
        _declare(first, words[1:], state)
        return [], {}
    if first in ("set", "unset", "for", "read"):
        _other_builtin(first, [raw.literal() for raw in words[1:]], state)
        return [], {}
    return words, leading


def _assigns(raw: RawWord) -> bool:
    return bool(raw.parts) and raw.parts[0].kind == "plain" and ASSIGNMENT.match(raw.parts[0].text) is not None


def _declare(word: str, raws: Sequence[RawWord], state: Variables) -> None:
    exports = word == "export"
    for raw in raws:
        literal = raw.literal()
        if literal.startswith("-"):
            exports = exports or "x" in literal
            continue
        state.assign(raw)
        match = ASSIGNMENT.match(literal)
        if exports:
            state.exported.add(match["name"] if match else literal)


def _other_builtin(word: str, arguments: list[str], state: Variables) -> None:
    if word == "set":
        if "-a" in arguments or ("-o" in arguments and "allexport" in arguments):
            state.export_all = True
        elif "+a" in arguments or ("+o" in arguments and "allexport" in arguments):
            state.export_all = False
        return
    for name in arguments[:1] if word == "for" else arguments:
        state.values.pop(name, None)
        state.arrays.pop(name, None)


def _from_words(words: list[Word], place: _Place, state: Variables, leading: Mapping[str, Word]) -> list[Launch]:
    """The launches of one command: none when it starts no vLLM."""
    rest, own, version = strip_prefixes(words)
    env = {**leading, **own}
    if not rest:
        return []
    name = program_name(rest[0])
    if name in RUNNERS:
        return _from_container(rest[1:], place)
    if name in _SHELLS or name == "eval":
        return _from_shell(rest, place, state, env)
    tokens = server_words(rest)
    if tokens is None:
        return []
    launch = _launch(tokens, place, state.environment(), env)
    return [replace(launch, version_hint=version)]


def _from_shell(words: list[Word], place: _Place, state: Variables, env: dict[str, Word]) -> list[Launch]:
    """The launches inside ``bash -c '...'`` or ``eval "..."``."""
    if place.depth >= _DEEPEST:
        raise UsageError(f"Line {place.line}: shells are nested too deeply.", "Give the inner command.")
    at = 1
    takes_text = words[0].text == "eval"
    while at < len(words) and words[at].text.startswith("-"):
        takes_text = takes_text or words[at].text.endswith("c")
        at += 1
    if not takes_text or at >= len(words):
        return []
    inner = state.copy()
    for name, word in env.items():
        inner.values[name] = word
        inner.exported.add(name)
    if takes_text and words[0].text != "eval" and len(words) > at + 1:
        inner.arrays["@"] = tuple(words[at + 2 :])  # `sh -c TEXT NAME ARGUMENT...`
    return _read_text(words[at].text, replace(place, depth=place.depth + 1), inner)


def _from_container(words: list[Word], place: _Place) -> list[Launch]:
    run = read_run(words)
    return [] if run is None else launches_of(run, place.source, place.line)


def launches_of(run: ContainerRun, source: str = "", line: int = 1) -> list[Launch]:
    """The launches of a container whose entrypoint, command, image and environment are known.

    Raises UsageError as ``read_command`` does.
    """
    place = _Place(source, line)
    inside = Variables()
    for name, word in run.env.items():
        inside.values[name] = word
        inside.exported.add(name)
    command = ([run.entrypoint] if run.entrypoint is not None and run.entrypoint.text else []) + run.command
    found = _from_words(command, place, inside, {}) if command else []
    if not found and run.serves:
        found = [_launch(command, place, inside.environment(), run.env)]
    return [_in_container(launch, run) for launch in found]


def _in_container(launch: Launch, run: ContainerRun) -> Launch:
    """``launch`` with what the container around it says: version, GPUs, and what could not be known."""
    version = launch.version_hint or (None if run.image.unknown else image_version(run.image.text))
    notes = [*run.notes, *launch.notes]
    if version is None and run.is_vllm:
        notes.append(f"The image {run.image.text[:80]} does not say its vLLM version.")
    gpus = launch.gpu_hint if launch.gpu_hint is not None else run.gpus
    return replace(launch, version_hint=version, gpu_hint=gpus, notes=tuple(notes))


def _launch(words: list[Word], place: _Place, exported: dict[str, str], env: Mapping[str, Word]) -> Launch:
    """The launch of a server's ``words``. Raises UsageError where one that matters is not known."""
    notes: list[str] = []
    kept = [word for word in words if not word.arguments]
    if len(kept) < len(words):
        notes.append('The script\'s own arguments ("$@") are not known and were left out.')
    tokens = tuple(word.text for word in kept)
    need_known(kept, tokens, place.line)
    for name, word in env.items():
        if word.unknown:
            exported.pop(name, None)
            notes.append(f"The value of {name} is not known here and was left out.")
        else:
            exported[name] = word.text
    return Launch(tokens, exported, None, _visible(exported), place.source, place.line, tuple(notes))


def _visible(env: Mapping[str, str]) -> int | None:
    """How many GPUs ``CUDA_VISIBLE_DEVICES`` leaves, or None where it limits nothing."""
    listed = env.get("CUDA_VISIBLE_DEVICES", "").strip()
    if listed in ("", "all", "-1", "NoDevFiles"):
        return None
    return len([part for part in listed.split(",") if part.strip()]) or None
