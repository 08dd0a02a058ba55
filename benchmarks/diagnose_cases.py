"""The cases of a corpus of launches, and what of each a person would hand to ``kvroom diagnose``.

The log is the case's lines. Beside it goes what the report states: the command, the model, the GPUs, vLLM's
version and the environment; never what was observed, the cause or the fix. Where names were replaced in a
command, ports and hosts get one and a description (``<recipe long-text>``) is dropped.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

STATED = "stated in the thread"

_HEAD = re.compile(r"# (?:thread|note):")
_STANDING = {"<PORT>": "8000", "<HOST>": "0.0.0.0", "<TEMPLATE>": "template.jinja"}  # noqa: S104
_PLACEHOLDER = re.compile(r"<([^<>\s]+)>")
_DESCRIPTION = re.compile(r"<[^<>]*>|[\w.]+\.json")
_PAIR = re.compile(r"\b([a-z][a-z_]+)=(\"[^\"]*\"|'[^']*'|\{[^{}]*\}|[^\s,()]+)")
_CALL = re.compile(r"\w*\(.*")
_PLAIN_MODEL = re.compile(r"[\w.-]+(?:/[\w.-]+){0,1}")
_VERSION = re.compile(r"\d+(?:\.\d+)+(?:\.?(?:a|b|rc|post|dev)\d+)*(?:\+[\w.]+)?(?=\s|$)")
_NO_CARD = re.compile(r".*\b(?:class|cards?)\b|\d+ GB GPU", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Case:
    """One report or log."""

    id: str
    lines: tuple[str, ...]
    asked: Mapping[str, Any] = field(default_factory=dict)
    """What goes to ``kvroom.diagnose`` beside the log."""
    observed: Mapping[str, Any] = field(default_factory=dict)
    basis: str = ""
    fix: str = ""

    @property
    def log(self) -> str:
        """The lines as one text."""
        return "\n".join(self.lines)

    @property
    def stated(self) -> bool:
        """Whether the report itself says the cause."""
        return self.basis == STATED


def failing(corpus: Path) -> Iterator[Case]:
    """The launches that failed or hurt, by id."""
    return _reports(corpus / "failing")


def started(corpus: Path) -> Iterator[Case]:
    """The launches that came up, by id."""
    return _reports(corpus / "started")


def samples(corpus: Path) -> Iterator[Case]:
    """The log samples, without the lines on top that say where they come from."""
    for path in sorted((corpus / "log-samples").glob("*.log")):
        lines = path.read_text("utf-8", errors="replace").splitlines()
        body = next((number for number, line in enumerate(lines) if not _HEAD.match(line)), len(lines))
        yield Case(path.stem, tuple(lines[body:]))


def _reports(folder: Path) -> Iterator[Case]:
    for path in sorted(folder.glob("*.json")):
        yield read_case(json.loads(path.read_text("utf-8")))


def read_case(data: Mapping[str, Any]) -> Case:
    """One report of the corpus."""
    return Case(
        str(data["id"]),
        tuple(data.get("log_lines") or ()),
        asked_with(data),
        data.get("observed") or {},
        data.get("root_cause_basis") or "",
        data.get("what_fixed_it") or "",
    )


def asked_with(data: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of ``kvroom.diagnose`` that the report states; remarks in brackets are not part of a name.

    >>> asked_with({"gpu": {"name": "NVIDIA GB10 (DGX Spark)", "count": 2}, "vllm_version": "0.7.x"})
    {'gpu': '2x NVIDIA GB10'}
    >>> asked_with({"env": {"A_B": "0 (works)", "C_D": "1"}, "command": ["<tp 2>"]})
    {'env': {'C_D': '1'}}
    """
    asked: dict[str, Any] = {}
    if command := as_typed(data.get("command") or ()):
        asked["command"] = command
    if _PLAIN_MODEL.fullmatch(data.get("model") or ""):
        asked["model"] = data["model"]
    gpu = data.get("gpu") or {}
    name = re.sub(r"\s*[(,].*", "", gpu.get("name") or "")
    if name and not _NO_CARD.match(name):
        asked["gpu"] = f"{gpu['count']}x {name}" if gpu.get("count") else name
    if version := _VERSION.match(data.get("vllm_version") or ""):
        asked["vllm"] = version.group()
    if env := {key: str(value) for key, value in (data.get("env") or {}).items() if not re.search(r"\s", str(value))}:
        asked["env"] = env
    return asked


def as_typed(tokens: Sequence[str]) -> list[str]:
    """The command as it was typed, as far as ``tokens`` still say; a call or a list of settings becomes flags.

    >>> as_typed(["<recipe>", "--port", "<PORT>", "--max-model-len", "4096"])
    ['vllm', 'serve', '--port', '8000', '--max-model-len', '4096']
    >>> as_typed(["LLM(model='<AWQ-7B>', enforce_eager=True, gpu_memory_utilization=0.1)"])
    ['vllm', 'serve', '--model', 'AWQ-7B', '--enforce-eager', '--gpu-memory-utilization', '0.1']
    """
    typed: list[str] = []
    for token in tokens:
        known = _STANDING.get(token)
        if known is None and _DESCRIPTION.fullmatch(token) and (not typed or " " in token):
            if typed and typed[-1].startswith("--") and " " in token and re.search(r"\d", token):
                typed.pop()
        elif not token.startswith("-") and (_CALL.fullmatch(token) or _PAIR.fullmatch(token)):
            typed += _as_flags(token)
        else:
            typed.append(known or _PLACEHOLDER.sub(r"\1", token.replace("<MODEL_DIR>", "/models")))
    return ["vllm", "serve", *typed] if typed and typed[0].startswith("-") else typed


def _as_flags(text: str) -> Iterator[str]:
    for name, value in _PAIR.findall(text):
        plain = _PLACEHOLDER.sub(r"\1", value.strip("'\""))
        if plain in {"...", "all", "recipe", "False", "false"} or plain.startswith("<"):
            continue
        yield "--" + name.replace("_", "-")
        if plain not in {"True", "true"}:
            yield plain
