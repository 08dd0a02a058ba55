"""Launches of a corpus that came up, as kvroom is asked about them, beside what they logged.

A launch is the command, the card, the release and the environment that a report states. What a start logged of its
settings (length, sequences, batched tokens, share of memory) counts as stated where the command is not known.
Sizes that were logged are never asked with.
"""

from __future__ import annotations

import csv
import json
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
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
_SIZES = {
    "weights": "weights",
    "act": "activation",
    "nontorch": "non_torch",
    "kv": "kv_available",
    "graph": "graph",
}
"""Columns of the series to the names of sizes in reports."""
_SERIES = {
    "deepseek-r1-distill-qwen-7b": "deepseek-ai/DeepSeek-R1-Distill-Qwen-7B",
    "deepseek-v2-lite": "deepseek-ai/DeepSeek-V2-Lite",
    "deepseek-v2-lite-16b": "deepseek-ai/DeepSeek-V2-Lite",
    "falcon-7b": "tiiuae/falcon-7b",
    "falcon-11b": "tiiuae/falcon-11B",
    "gpt-oss-20b": "openai/gpt-oss-20b",
    "granite3.3-8b-instruct": "ibm-granite/granite-3.3-8b-instruct",
    "granite4.0-h-32b": "ibm-granite/granite-4.0-h-small",
    "llama-2-7b-hf": "meta-llama/Llama-2-7b-hf",
    "llama2-7b-hf": "meta-llama/Llama-2-7b-hf",
    "llama2-13b-hf": "meta-llama/Llama-2-13b-hf",
    "llama3-3b": "meta-llama/Llama-3.2-3B-Instruct",
    "llama3.1-8b-instruct": "meta-llama/Llama-3.1-8B-Instruct",
    "opt-6.7b": "facebook/opt-6.7b",
    "qwen-0.5b": "Qwen/Qwen1.5-0.5B",
    "qwen-1.8b": "Qwen/Qwen1.5-1.8B",
    "qwen-4b": "Qwen/Qwen1.5-4B",
    "qwen-7b": "Qwen/Qwen1.5-7B",
    "qwen-14b": "Qwen/Qwen1.5-14B",
    "qwen-14.3b": "Qwen/Qwen1.5-MoE-A2.7B",
    "qwen1.5-0.5b": "Qwen/Qwen1.5-0.5B",
    "qwen1.5-4b": "Qwen/Qwen1.5-4B",
    "qwen1.5-14b": "Qwen/Qwen1.5-14B",
    "yi-6b": "01-ai/Yi-6B",
    "yi-9b": "01-ai/Yi-9B",
}
"""Names of the series to models; by the weights that were logged."""


@dataclass(frozen=True, slots=True)
class Launch:
    """One launch that came up."""

    id: str
    words: tuple[str, ...]
    """After ``vllm serve``; the model first."""
    env: Mapping[str, str]
    gpu: str
    release: str
    observed: Mapping[str, Any] = field(default_factory=dict)
    """What it logged: ``*_gib`` per GPU, ``kv_tokens``, ``gpu_blocks``, ``concurrency`` ..."""
    backend: str | None = None

    def plan(self) -> Plan:
        """What kvroom answers; a KvroomError where it cannot."""
        request = Request(gpu=self.gpu, vllm=self.release, offline=True)
        return plan_tokens(list(self.words), self.env, request)


def started(corpus: Path) -> Iterator[Launch]:
    """The reports whose command or settings, card and release are known."""
    for path in sorted((corpus / "started").glob("*.json")):
        data = json.loads(path.read_text("utf-8"))
        launch = _report(data)
        if launch is not None:
            yield launch


def _report(data: Mapping[str, Any]) -> Launch | None:
    asked = asked_with(data)
    if not {"gpu", "vllm", "model"} <= asked.keys():
        return None
    observed = data.get("observed") or {}
    given = asked.get("command")
    if given is None:
        words = [asked["model"]]
        for name in _SETTINGS:
            if observed.get(name) is not None:
                words += ["--" + name.replace("_", "-"), str(observed[name])]
    elif given[:2] == ["vllm", "serve"]:
        words = given[2:]
    else:
        return None
    if data["id"] in _FROM_SERIES:
        words = [*words, *_defaults(words)]
    return Launch(
        data["id"],
        tuple(words),
        asked.get("env", {}),
        asked["gpu"],
        asked["vllm"],
        observed,
        data.get("attention_backend"),
    )


def series(corpus: Path) -> Iterator[Launch]:
    """The rows of ``started-series.csv`` whose model's config is public."""
    with (corpus / "started-series.csv").open(encoding="utf-8", newline="") as file:
        for number, row in enumerate(csv.DictReader(file), 2):
            model = _SERIES.get(row["model"].lower().removesuffix("-tensorized"))
            if model is None or row["quant"] not in ("None", "mxfp4"):
                continue
            flags = [re.sub(r"^(\d+)k$", r"\1K", word) for word in shlex.split(row["flags"])]
            words = [model, "--dtype", row["dtype"].removeprefix("torch."), *flags, *_defaults(flags)]
            if row["mml"] and "--max-model-len" not in words:
                words += ["--max-model-len", row["mml"]]
            if row["eager"] == "True":
                words.append("--enforce-eager")
            logged = {f"{name}_gib": float(row[column]) for column, name in _SIZES.items() if row[column]}
            if row["tokens"]:
                logged["kv_tokens"] = int(float(row["tokens"]))
            env = {"VLLM_USE_FLASHINFER_SAMPLER": str(int(row["sampler"] == "flashinfer"))}
            yield Launch(f"series:{number}", tuple(words), env, row["gpu"], row["version"], logged)


def _defaults(words: Sequence[str]) -> Iterator[str]:
    for flag, value in _OF_THE_ENGINE.items():
        if flag not in words:
            yield from (flag, value)
