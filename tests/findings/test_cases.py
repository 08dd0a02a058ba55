"""Each rule on a launch that shows the problem and on one that does not."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pytest

from kvroom.findings.catalogue import LAUNCH
from kvroom.ledger.predict import Prediction
from kvroom.models.quantization import assume_quantization
from kvroom.models.shape import Experts, MlaCache, Rope, VisionTower

if TYPE_CHECKING:
    from kvroom.findings.finding import Finding

Launch = Callable[..., Prediction]


@dataclass(frozen=True)
class Case:
    """One rule with a launch that it reports, in these words, and launches that it does not."""

    code: str
    yes: Mapping[str, Any]
    says: str
    no: tuple[Mapping[str, Any], ...]


YARN = {"rope": Rope("yarn", 4.0, 32768)}
CASES = (
    Case(
        "KVR101",
        {"command": "--kv-cache-memory-bytes 8G --gpu-memory-utilization 0.95"},
        "gets 8.00 GiB whatever --gpu-memory-utilization 0.95 says; it still requires 22.80 GiB to be free",
        ({"command": "--kv-cache-memory-bytes 8G"}, {"command": "--gpu-memory-utilization 0.95"}),
    ),
    Case(
        "KVR102",
        {"free_gib": 20.5},
        "0.9 of the card is 21.60 GiB; 20.50 GiB is free.",
        ({"free_gib": 22}, {}),
    ),
    Case(
        "KVR103",
        {
            "command": "--gpu-memory-utilization 0.97",
            "release": "0.19.0",
            "settings": {"capture_sizes": tuple(range(1, 52))},
        },
        "CUDA graphs (",
        (
            {
                "command": "--gpu-memory-utilization 0.9",
                "release": "0.19.0",
                "settings": {"capture_sizes": tuple(range(1, 52))},
            },
            {"command": "--gpu-memory-utilization 0.97", "settings": {"capture_sizes": tuple(range(1, 52))}},
        ),
    ),
    Case(
        "KVR103",
        {
            "command": "--gpu-memory-utilization 0.97",
            "backend": {"name": "FLASHINFER", "outside_bytes": 413138944},
        },
        "the workspace of FLASHINFER (0.38 GiB) must fit outside the budget, where 0.27 GiB",
        (
            {
                "command": "--gpu-memory-utilization 0.95",
                "backend": {"name": "FLASHINFER", "outside_bytes": 413138944},
            },
        ),
    ),
    Case(
        "KVR104",
        {"command": "--enforce-eager", "release": "0.19.0"},
        "eager mode frees nothing",
        (
            {"command": "--enforce-eager", "release": "0.20.0"},
            {"release": "0.19.0"},
            {
                "command": "--enforce-eager",
                "release": "0.19.0",
                "env": {"VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS": "1"},
            },
        ),
    ),
    Case(
        "KVR105",
        {"command": "--num-gpu-blocks-override 1000000", "gib": {"weights": 10}},
        "blocks take 61.04 GiB, more than the 10.50 GiB available; the start-up check uses the overridden",
        ({},),
    ),
    Case(
        "KVR105",
        {"command": "--num-gpu-blocks-override 1000", "release": "0.19.0"},
        "the start-up check ignores it",
        ({"release": "0.19.0"},),
    ),
    Case(
        "KVR106",
        {"command": "--cpu-offload-gb 4"},
        "Up to 4 GiB of weights a GPU move",
        ({}, {"command": "--cpu-offload-gb 0"}),
    ),
    Case(
        "KVR107",
        {"command": "--kv-offloading-size 64"},
        "one request still needs 2.00 GiB on the GPU",
        ({}, {"command": """--kv-transfer-config '{"kv_connector": "NixlConnector"}'"""}),
    ),
    Case(
        "KVR107",
        {"command": """--kv-transfer-config '{"kv_connector": "OffloadingConnector"}'"""},
        "do not count in the start-up check",
        ({},),
    ),
    Case(
        "KVR108",
        {"command": "--kv-cache-memory-bytes 12G"},
        "12.00 GiB are asked for; weights and activations leave 7.45 GiB.",
        ({"command": "--kv-cache-memory-bytes 7G"}, {}),
    ),
    Case(
        "KVR103",
        {
            "command": "--kv-cache-memory-bytes 7500M",
            "backend": {"name": "FLASHINFER", "outside_bytes": 413138944},
        },
        "the workspace of FLASHINFER (0.38 GiB) must fit outside the budget",
        (
            {
                "command": "--kv-cache-memory-bytes 7000M",
                "backend": {"name": "FLASHINFER", "outside_bytes": 413138944},
            },
        ),
    ),
    Case(
        "KVR111",
        {"command": "--swap-space 16", "release": "0.10.2"},
        "--swap-space 16 has no effect on the V1 engine",
        (
            {"command": "--swap-space 16", "release": "0.8.5", "settings": {"engine": "V0"}},
            {"release": "0.10.2"},
        ),
    ),
    Case(
        "KVR112",
        {"env": {"VLLM_ATTENTION_BACKEND": "FLASHINFER"}},
        "vLLM 0.28.0 does not read VLLM_ATTENTION_BACKEND; 0.14.1 was the last to do so.",
        (
            {"env": {"VLLM_ATTENTION_BACKEND": "FLASHINFER"}, "release": "0.14.0"},
            {"env": {"VLLM_USE_V1": "0"}, "release": "0.10.2"},
            {"env": {"VLLM_LOGGING_LEVEL": "DEBUG", "VLLM_IMAGE_TAG": "v0.28.0", "HF_TOKEN": "x"}},
        ),
    ),
    Case("KVR112", {"env": {"VLLM_USE_V1": "0"}, "release": "0.11.0"}, "does not read VLLM_USE_V1", ({},)),
    Case(
        "KVR112",
        {"env": {"VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS": "1"}, "release": "0.15.0"},
        "which came after",
        ({"env": {"VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS": "1"}, "release": "0.19.0"},),
    ),
    Case(
        "KVR112",
        {"env": {"VLLM_ALOW_LONG_MAX_MODEL_LEN": "1"}},
        "VLLM_ALLOW_LONG_MAX_MODEL_LEN is a variable",
        ({"env": {"VLLM_ALLOW_LONG_MAX_MODEL_LEN": "1"}},),
    ),
    Case(
        "KVR113",
        {"command": "--swap-space 8", "release": "0.18.1"},
        "vLLM 0.18.1 has no --swap-space; 0.17.1 was the last release with it.",
        ({"command": "--swap-space 8", "release": "0.17.0"}, {"command": "--max-modle-len 8192"}),
    ),
    Case(
        "KVR113",
        {"command": "--kv-offloading-size 8", "release": "0.10.2"},
        "it came with 0.11.2",
        ({"command": "--kv-offloading-size 8"},),
    ),
    Case(
        "KVR114",
        {"command": "--max-modle-len 8192"},
        "No release of vLLM has --max-modle-len; did you mean --max-model-len?",
        ({"command": "--max-model-len 8192"}, {"command": "--swap-space 8", "release": "0.18.1"}),
    ),
    Case(
        "KVR115",
        {"command": "--calculate-kv-scales", "release": "0.20.0"},
        "warns of --calculate-kv-scales",
        (
            {"command": "--calculate-kv-scales", "release": "0.10.2"},
            {"command": "--calculate-kv-scales", "release": "0.28.0"},
        ),
    ),
    Case(
        "KVR121",
        {"command": "--max-model-len 131072", "release": "0.30.0", "shape": YARN, "refused": "too long"},
        "YaRN with factor 4 would give 131,072 tokens; vLLM 0.30.0 allows 32,768.",
        (
            {"command": "--max-model-len 131072", "release": "0.29.0", "shape": YARN},
            {
                "release": "0.30.0",
                "shape": YARN | {"position_limits": (("max_position_embeddings", 131072),)},
            },
            {
                "command": "--max-model-len 131072",
                "release": "0.30.0",
                "shape": YARN,
                "env": {"VLLM_ALLOW_LONG_MAX_MODEL_LEN": "1"},
            },
        ),
    ),
    Case(
        "KVR122",
        {"command": "--max-model-len 32k"},
        "max_model_len is 32,000; 32K would be 32,768, which the model allows.",
        (
            {"command": "--max-model-len 32K"},
            {"command": "--max-model-len 32k", "settings": {"derived_max_model_len": 32000}},
            {"command": "--max-model-len 30k"},
        ),
    ),
    Case(
        "KVR122",
        {
            "command": "--max-model-len 128K",
            "shape": {"position_limits": (("n_positions", 128000),)},
            "refused": "too long",
        },
        "128K is 131,072, above the model's 128,000; 128k is 128,000.",
        ({"command": "--max-model-len 128k", "shape": {"position_limits": (("n_positions", 128000),)}},),
    ),
    Case(
        "KVR123",
        {"command": "--no-enable-chunked-prefill --max-num-batched-tokens 8192", "refused": "smaller"},
        "max_num_batched_tokens is 8,192 and max_model_len 32,768",
        (
            {"command": "--max-num-batched-tokens 8192"},
            {"command": "--no-enable-chunked-prefill --max-num-batched-tokens 32768"},
            {"command": "--no-enable-chunked-prefill"},
        ),
    ),
    Case(
        "KVR124",
        {"command": "--max-num-seqs 512 --max-num-batched-tokens 256", "refused": "must be"},
        "max_num_batched_tokens (256) is below max_num_seqs (512)",
        (
            {"command": "--max-num-seqs 512 --max-num-batched-tokens 512"},
            {"command": "--max-num-batched-tokens 64"},
        ),
    ),
    Case(
        "KVR125",
        {"command": "--max-num-batched-tokens 131072 --max-num-seqs 2"},
        "exceeds max_num_seqs x max_model_len (65,536)",
        ({"command": "--max-num-batched-tokens 8192 --max-num-seqs 2"},),
    ),
    Case(
        "KVR125",
        {
            "command": "--max-num-batched-tokens 65536",
            "activation_cause": "forward",
            "gib": {"activation": 7},
        },
        "65,536 batched tokens set the activation peak of 7.00 GiB",
        (
            {"command": "--max-num-batched-tokens 65536"},
            {"command": "--max-num-batched-tokens 8192", "activation_cause": "forward"},
        ),
    ),
    Case(
        "KVR126",
        {"command": "--max-num-seqs 256"},
        "max_num_seqs is 256; the pool holds 8.00 requests of 32,768 tokens, or 256 of 1,024.",
        (
            {},
            {"command": "--max-num-seqs 32"},
            {"command": "--max-num-seqs 256", "pool": {"error": "too small"}},
        ),
    ),
    Case(
        "KVR127",
        {"pool": {"max_concurrency": 1.12, "tokens": 36700}},
        "The pool of 36,700 tokens holds 1.12 requests of 32,768 tokens.",
        ({}, {"command": "--max-num-seqs 1", "pool": {"max_concurrency": 1.12}}),
    ),
    Case(
        "KVR128",
        {"command": "--max-model-len 131072", "env": {"VLLM_ALLOW_LONG_MAX_MODEL_LEN": "1"}},
        "131,072 tokens are served by a model made for 32,768 (max_position_embeddings).",
        (
            {},
            {"command": "--max-model-len 32768"},
            {"command": "--max-model-len 131072", "refused": "too long"},
        ),
    ),
    Case(
        "KVR131",
        {"command": "--tensor-parallel-size 3", "refused": "must be divisible"},
        "32 attention heads and 8 KV heads cannot be dealt to 3 ranks; 1, 2, 4, 8, 16 would work.",
        ({"command": "--tensor-parallel-size 4"}, {"command": "-tp 3", "shape": {"heads": 0, "kv_heads": 0}}),
    ),
    Case(
        "KVR132",
        {"command": "--tensor-parallel-size 16"},
        "8 KV heads on 16 tensor-parallel ranks: every token is stored 2 times.",
        (
            {"command": "--tensor-parallel-size 8"},
            {"command": "--tensor-parallel-size 16 --decode-context-parallel-size 2"},
        ),
    ),
    Case(
        "KVR132",
        {"command": "--tensor-parallel-size 8", "shape": {"mla": MlaCache(512, 64)}},
        "every token is stored 8 times",
        ({"shape": {"mla": MlaCache(512, 64)}},),
    ),
    Case(
        "KVR133",
        {"command": "--enable-expert-parallel", "refused": "Number of experts"},
        "org/dense-8b (LlamaForCausalLM) has no routed experts.",
        ({}, {"command": "--enable-expert-parallel", "shape": {"experts": Experts(128, 8, 768, 0, 48)}}),
    ),
    Case(
        "KVR134",
        {"count": 2},
        "1 of 2 GPUs is used.",
        (
            {"count": 2, "command": "--tensor-parallel-size 2"},
            {"count": 2, "command": "--data-parallel-size 2"},
        ),
    ),
    Case(
        "KVR141",
        {"states": 3, "pool": {"num_blocks": 145, "error": "max_num_seqs (256) exceeds"}},
        "145 blocks for max_num_seqs 256: vLLM refuses to start.",
        (
            {"pool": {"num_blocks": 145}},
            {"states": 3, "pool": {"num_blocks": 145}, "command": "--max-num-seqs 145"},
            {"states": 3, "pool": {"num_blocks": 145}, "command": "--enforce-eager"},
            {"states": 3, "pool": {"num_blocks": 0, "error": "No available memory"}},
        ),
    ),
    Case(
        "KVR143",
        {"states": 3, "settings": {"mamba_cache_mode": "align"}},
        "Prefix caching in mode align costs each sequence 3 more state blocks (0.2 MiB).",
        (
            {"states": 3},
            {"states": 3, "settings": {"mamba_cache_mode": "align", "enable_prefix_caching": False}},
            {"settings": {"mamba_cache_mode": "align"}},
        ),
    ),
    Case(
        "KVR144",
        {"command": "--block-size 32"},
        "--block-size 32 becomes 16 tokens here.",
        ({}, {"command": "--block-size 16"}),
    ),
    Case(
        "KVR151",
        {
            "shape": {"vision": VisionTower(1152, 27, 14)},
            "activation_cause": "encoder",
            "gib": {"activation": 3.5},
        },
        "Profiling the vision encoder takes 3.50 GiB from the KV cache.",
        ({"shape": {"vision": VisionTower(1152, 27, 14)}}, {}),
    ),
    Case(
        "KVR161",
        {"command": "--quantization fp8", "shape": {"quantization": "gptq"}, "refused": "does not match"},
        "--quantization fp8, but the checkpoint is stored as gptq.",
        (
            {"command": "--quantization gptq_marlin", "shape": {"quantization": "gptq"}},
            {"command": "--quantization fp8"},
            {"shape": {"quantization": "gptq"}},
        ),
    ),
    Case(
        "KVR161",
        {"command": "--quantization awq"},
        "The checkpoint's config does not say awq",
        ({"command": "--quantization bitsandbytes", "release": "0.20.0"},),
    ),
    Case(
        "KVR162",
        {"shape": {"quantization": "awq"}, "device": {"compute_capability": (7, 0), "name": "Tesla V100"}},
        "awq needs compute capability 7.5 in vLLM 0.28.0; Tesla V100 has 7.0.",
        (
            {"shape": {"quantization": "awq"}},
            {"shape": {"quantization": "gptq"}, "device": {"compute_capability": (7, 0)}},
            {"command": "--quantization fp8", "device": {"compute_capability": (7, 5)}},
            {"shape": {"quantization": "awq"}, "device": {"compute_capability": None, "vendor": "AMD"}},
        ),
    ),
    Case(
        "KVR162",
        {"command": "--quantization fp8", "release": "0.13.0", "device": {"compute_capability": (7, 5)}},
        "fp8 needs compute capability 8.0 in vLLM 0.13.0",
        ({"command": "--quantization fp8", "release": "0.14.0", "device": {"compute_capability": (7, 5)}},),
    ),
    Case(
        "KVR163",
        {
            "command": "--kv-cache-dtype fp8 --attention-backend FLASH_ATTN",
            "backend": {"error": "kv_cache_dtype not supported"},
        },
        "--kv-cache-dtype fp8 has no attention backend on NVIDIA GeForce RTX 4090 (compute capability 8.9).",
        ({"command": "--kv-cache-dtype fp8"}, {"backend": {"error": "head size not supported"}}),
    ),
    Case(
        "KVR165",
        {"command": "--dtype bfloat16", "device": {"compute_capability": (7, 5), "name": "Tesla T4"}},
        "Tesla T4 has compute capability 7.5; bfloat16 needs 8.0.",
        (
            {"command": "--dtype bfloat16"},
            {"command": "--dtype half", "device": {"compute_capability": (7, 5)}},
            {"device": {"compute_capability": (7, 5)}},
        ),
    ),
    Case(
        "KVR171",
        {"shape": {"assumptions": ("standard attention layers are assumed.",)}},
        "Assumed of LlamaForCausalLM: standard attention layers are assumed.",
        ({},),
    ),
)
PREDICTED = {"KVR142", "KVR164"}
"""Rules that predict again; test_predicted.py has their cases."""


def _run(code: str, launch: Launch, setup: Mapping[str, Any]) -> list[Finding]:
    shape = dict(setup.get("shape", {}))
    if isinstance(shape.get("quantization"), str):
        shape["quantization"] = _stored(shape["quantization"])
    module = next(module for module in LAUNCH if module.RULE.code == code)
    return list(module.find(launch(**{**setup, "shape": shape})))


def _stored(method: str) -> object:
    return replace(assume_quantization(method), assumed=False)


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.code}-{case.says[:24]}")
def test_the_problem_is_reported_in_words_with_numbers(case: Case, launch: Launch) -> None:
    (finding,) = _run(case.code, launch, case.yes)
    assert finding.code == case.code
    assert case.says in finding.title
    assert finding.why
    assert finding.evidence or case.code == "KVR151"


@pytest.mark.parametrize(("code", "setup"), [(case.code, setup) for case in CASES for setup in case.no], ids=str)
def test_a_launch_without_the_problem_is_left_alone(code: str, setup: Mapping[str, Any], launch: Launch) -> None:
    assert _run(code, launch, setup) == []


def test_every_rule_has_its_cases() -> None:
    assert {case.code for case in CASES} | PREDICTED == {module.RULE.code for module in LAUNCH}
    assert not {case.code for case in CASES if not case.no}
