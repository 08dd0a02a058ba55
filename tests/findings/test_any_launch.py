"""Whatever the launch, findings come without an exception and well formed."""

from __future__ import annotations

import string

from hypothesis import given, settings
from hypothesis import strategies as st

from kvroom.errors import KvroomError
from kvroom.findings.catalogue import all_rules
from kvroom.findings.launch import findings_of
from kvroom.plans.make import Request, plan_tokens

MODELS = (
    "Qwen/Qwen3-8B",
    "google/gemma-3-27b-it",
    "Qwen/Qwen3-Next-80B-A3B-Instruct",
    "deepseek-ai/DeepSeek-V3",
)
RELEASES = ("0.6.6", "0.8.5", "0.9.2", "0.11.0", "0.14.0", "0.18.1", "0.20.0", "0.28.0", "0.33.0", "0.99.0")
GPUS = ("RTX 4090", "H100", "2x A100 80GB", "Tesla T4", "MI300X")
FLAGS = (
    ("--max-model-len", "32k"),
    ("--max-num-seqs", "512"),
    ("--max-num-batched-tokens", "256"),
    ("--max-num-batched-tokens", "131072"),
    ("--no-enable-chunked-prefill",),
    ("--gpu-memory-utilization", "0.99"),
    ("--kv-cache-memory-bytes", "40000000000"),
    ("--num-gpu-blocks-override", "1000000"),
    ("--kv-cache-dtype", "fp8"),
    ("--quantization", "awq"),
    ("--dtype", "bfloat16"),
    ("--block-size", "32"),
    ("--tensor-parallel-size", "3"),
    ("--tensor-parallel-size", "16"),
    ("--enable-expert-parallel",),
    ("--enforce-eager",),
    ("--swap-space", "4"),
    ("--calculate-kv-scales",),
    ("--cpu-offload-gb", "2"),
    ("--disable-hybrid-kv-cache-manager",),
    ("--kv-transfer-config", '{"kv_connector": "OffloadingConnector"}'),
)
NAMES = st.text(string.ascii_uppercase + "_", min_size=1, max_size=12)
CODES = {rule.code: rule.name for rule in all_rules()}


@settings(max_examples=150, deadline=None)
@given(
    st.sampled_from(MODELS),
    st.sampled_from(GPUS),
    st.sampled_from(RELEASES),
    st.lists(st.sampled_from(FLAGS), max_size=5, unique_by=lambda flag: flag[0]),
    st.dictionaries(NAMES.map("VLLM_".__add__), st.just("1"), max_size=2),
)
def test_findings_are_well_formed(
    model: str, gpu: str, release: str, flags: list[tuple[str, ...]], env: dict[str, str]
) -> None:
    tokens = [model, *(word for flag in flags for word in flag)]
    try:
        prediction = plan_tokens(tokens, env, Request(gpu=gpu, vllm=release, offline=True)).prediction
    except KvroomError:
        return
    for finding in findings_of(prediction):
        assert CODES[finding.code] == finding.name
        assert finding.title.endswith((".", "?"))
        assert "\n" not in finding.title
        assert all(advice.strip() for advice in finding.advice)
