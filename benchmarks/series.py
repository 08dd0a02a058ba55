"""The starts of one study, ``started-series.csv`` of a corpus: many repeats on few machines."""

from __future__ import annotations

import csv
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

from benchmarks.launches import Launch, defaults

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


def series(corpus: Path) -> Iterator[Launch]:
    """The rows of ``started-series.csv`` whose model's config is public; none where a corpus has no such file."""
    path = corpus / "started-series.csv"
    if not path.exists():
        return
    with path.open(encoding="utf-8", newline="") as file:
        for number, row in enumerate(csv.DictReader(file), 2):
            model = _SERIES.get(row["model"].lower().removesuffix("-tensorized"))
            if model is None or row["quant"] not in ("None", "mxfp4"):
                continue
            flags = [re.sub(r"^(\d+)k$", r"\1K", word) for word in shlex.split(row["flags"])]
            words = [model, "--dtype", row["dtype"].removeprefix("torch."), *flags, *defaults(flags)]
            if row["mml"] and "--max-model-len" not in words:
                words += ["--max-model-len", row["mml"]]
            if row["eager"] == "True":
                words.append("--enforce-eager")
            logged = {f"{name}_gib": float(row[column]) for column, name in _SIZES.items() if row[column]}
            if row["tokens"]:
                logged["kv_tokens"] = int(float(row["tokens"]))
            env = {"VLLM_USE_FLASHINFER_SAMPLER": str(int(row["sampler"] == "flashinfer"))}
            yield Launch(f"series:{number}", tuple(words), env, row["gpu"], row["version"], logged, kind="series")
