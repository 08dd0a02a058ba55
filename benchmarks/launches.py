"""Launches of a corpus, as kvroom is asked about them, beside what they logged.

A launch is the command, the card, the release and the environment that a report states. What a start logged of its
settings (length, sequences, batched tokens, share of memory) counts as stated where the command is not known.
Sizes that were logged are never asked with. Rows of a corpus that are wrong are corrected by ``accuracy_map.json``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from benchmarks.diagnose_cases import asked_with
from kvroom.plans.make import plan_tokens
from kvroom.plans.plan import Plan
from kvroom.plans.request import Request

_SETTINGS = ("max_model_len", "max_num_seqs", "max_num_batched_tokens", "gpu_memory_utilization")
_OF_THE_ENGINE = {"--max-num-batched-tokens": "2048", "--max-num-seqs": "128"}
"""Defaults of a launch that is neither ``vllm serve`` nor ``LLM`` (vllm/config: SchedulerConfig). The series and the
reports taken from it were started so: their logs say 2,048 batched tokens on cards where a server takes 8,192, and a
start with 128 sequences logged the same peak as one without."""
_FROM_SERIES = frozenset("096 098 099 100 101 104 105 106 107 108 110 113".split())
_OLD_SERVER = ["python", "-m", "vllm.entrypoints.openai.api_server"]
_MUST_BE_STATED = {"gpu": "the card is not stated", "vllm": "the release is not stated"}
_NO_RELEASE = "0.1.dev"
_FIGURES = (
    "kv_available_gib kv_needed_gib kv_tokens blocks gpu_blocks weights_gib activation_gib non_torch_gib"
    " estimated_max_len"
).split()
"""What a failing report must show to be asked about."""
LOGGED = (*_FIGURES, "graph_estimated_gib", "concurrency")
"""What of a log a launch is scored with."""
_BEFORE_SERVING = (
    "config init_device weights compile profile profile_or_kv_check kv_check kv_alloc kv_alloc_or_graph_capture"
    " graph_capture_check graph_capture warmup"
).split()
"""Stages of the corpus at which a launch ends before it serves; at the others it came up, or nothing says so."""


@dataclass(frozen=True, slots=True)
class Launch:
    """One launch."""

    id: str
    words: tuple[str, ...]
    """After ``vllm serve``; the model first."""
    env: Mapping[str, str]
    gpu: str
    release: str
    observed: Mapping[str, Any] = field(default_factory=dict)
    """What it logged: ``*_gib`` per GPU, ``kv_tokens``, ``gpu_blocks``, ``concurrency`` ..."""
    backend: str | None = None
    starts: bool | None = True
    """Whether it came up, None where the report does not show it."""
    kind: str = "started"
    """``started``, ``failing`` or ``series``."""
    quantization: str | None = None
    """``--assume-quantization``, where a stand-in's config lacks it."""
    total: int | None = None
    """Bytes of the card, where they are not what torch reports of it under Linux."""

    def plan(self, measured: Mapping[str, int] | None = None) -> Plan:
        """What kvroom answers, given ``measured`` entries; a KvroomError where it cannot."""
        known = {} if self.total is None else {"total": self.total}
        request = Request(
            gpu=self.gpu,
            vllm=self.release,
            offline=True,
            measured={**known, **(measured or {})},
            assume_quantization=self.quantization,
        )
        return plan_tokens(list(self.words), self.env, request)

    def kept(self) -> dict[str, Any]:
        """The launch as JSON, without what it did not log."""
        data = {field.name: getattr(self, field.name) for field in fields(self)}
        data["observed"] = {key: self.observed[key] for key in LOGGED if self.observed.get(key) is not None}
        return {name: value for name, value in data.items() if value not in (None, {}, ())}

    @staticmethod
    def of(data: Mapping[str, Any]) -> Launch:
        """The launch that ``kept`` wrote."""
        return Launch(**{"env": {}, "starts": None, **data, "words": tuple(data["words"])})


@dataclass(frozen=True, slots=True)
class Apart:
    """A row that cannot be asked about."""

    id: str
    reason: str


def read_corrections() -> dict[str, dict[str, Any]]:
    """``accuracy_map.json``: by the row's id, what is read instead, or ``apart``, with the reason under ``why``."""
    corrections: dict[str, dict[str, Any]] = json.loads(
        Path(__file__).with_name("accuracy_map.json").read_text("utf-8")
    )["rows"]
    return corrections


def read_reasons() -> dict[str, str]:
    """By the row's id, why its prediction is far from what it logged."""
    reasons: dict[str, str] = json.loads(Path(__file__).with_name("accuracy_map.json").read_text("utf-8"))["reasons"]
    return reasons


def started(corpus: Path) -> Iterator[Launch]:
    """The reports of launches that came up whose command or settings, card and release are known."""
    return (each for each in reports(corpus, {}, "started") if isinstance(each, Launch))


def reports(
    corpus: Path, corrections: Mapping[str, Mapping[str, Any]], kind: str = "started"
) -> Iterator[Launch | Apart]:
    """Every report of a kind, ``started`` or ``failing``: as kvroom is asked, or why it cannot be."""
    for path in sorted((corpus / kind).glob("*.json")):
        data = json.loads(path.read_text("utf-8"))
        yield report(data, corrections.get(str(data["id"]), {}), kind)


def report(data: Mapping[str, Any], correction: Mapping[str, Any], kind: str = "started") -> Launch | Apart:
    """One report as kvroom is asked about it.

    ``correction`` replaces ``model``, ``gpu``, ``total``, ``vllm``, ``words``, ``env`` and single figures of
    ``observed``, adds the flags ``more``, or says under ``apart`` why it is not asked about.
    """
    name = str(data["id"])
    if "apart" in correction:
        return Apart(name, correction["apart"])
    observed = {**(data.get("observed") or {}), **correction.get("observed", {})}
    if kind == "failing" and not any(observed.get(key) is not None for key in _FIGURES):
        return Apart(name, "its log shows none of the memory figures")
    asked = {**asked_with(data), **{key: correction[key] for key in ("gpu", "vllm", "env") if key in correction}}
    if asked.get("vllm", "").startswith(_NO_RELEASE):
        return Apart(name, "a development build that names no release")
    missing = [said for key, said in _MUST_BE_STATED.items() if key not in asked]
    words = _words(asked, observed, correction)
    if words is None:
        missing.append("the command and the settings are not stated")
    if missing or words is None:
        return Apart(name, "; ".join(missing))
    if name in _FROM_SERIES:
        words = [*words, *defaults(words)]
    return Launch(
        name,
        tuple(words),
        asked.get("env", {}),
        asked["gpu"],
        asked["vllm"],
        observed,
        data.get("attention_backend"),
        _came_up(observed.get("stage")) if kind == "failing" else True,
        kind,
        correction.get("quantization"),
        correction.get("total"),
    )


def _words(asked: Mapping[str, Any], observed: Mapping[str, Any], correction: Mapping[str, Any]) -> list[str] | None:
    """The words after ``vllm serve``, None where nothing states the model and the settings."""
    if "words" in correction:
        return [*correction["words"]]
    given = asked.get("command")
    if given is None:
        model = correction.get("model", asked.get("model"))
        known = [name for name in _SETTINGS if observed.get(name) is not None]
        if model is None or "max_model_len" not in known:
            return None
        words = [model]
        for name in known:
            words += ["--" + name.replace("_", "-"), str(observed[name])]
    elif given[:2] == ["vllm", "serve"]:
        words = given[2:]
    elif given[:3] == _OLD_SERVER:
        words = given[3:]
    else:
        return None
    if "model" in correction:
        words = _with_model(words, correction["model"])
    return [*words, *correction.get("more", ())]


def _with_model(words: Sequence[str], model: str) -> list[str]:
    """``words`` with another model, wherever it stands.

    >>> _with_model(["a/b", "--port", "80"], "c/d"), _with_model(["--port", "80", "--model", "a/b"], "c/d")
    (['c/d', '--port', '80'], ['--port', '80', '--model', 'c/d'])
    """
    if "--model" in words:
        at = list(words).index("--model") + 1
        return [*words[:at], model, *words[at + 1 :]]
    return [model, *(words if words[:1] and words[0].startswith("-") else words[1:])]


def _came_up(stage: str | None) -> bool | None:
    if stage in _BEFORE_SERVING:
        return False
    return None if stage in (None, "startup") else True


def defaults(words: Sequence[str]) -> Iterator[str]:
    """The flags that such a launch lacks, with what it then takes."""
    for flag, value in _OF_THE_ENGINE.items():
        if flag not in words:
            yield from (flag, value)
