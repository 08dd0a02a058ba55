"""Whatever is launched on whatever card: a plan or one clear error, and a plan that holds together."""

from __future__ import annotations

import json
import shlex

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kvroom.devices.catalogue import parts
from kvroom.errors import KvroomError
from kvroom.models.catalogue import index
from kvroom.plans.make import plan_tokens
from kvroom.plans.plan import Plan
from kvroom.plans.request import Request
from kvroom.report.as_json import plan_data
from kvroom.report.command import show_command

RELEASES = (
    *("0.4.0", "0.4.3", "0.5.5", "0.6.6", "0.7.3", "0.8.5", "0.9.2", "0.10.2", "0.11.0", "0.12.0", "0.14.1"),
    *("0.16.0", "0.18.0", "0.19.1", "0.20.2", "0.23.0", "0.25.1", "0.27.1", "0.28.0", "0.30.0", "0.31.0", "0.33.0"),
)
VALUES = {
    "--max-model-len": ("1", "512", "4096", "32k", "131072", "1000000000", "auto"),
    "--max-num-seqs": ("1", "7", "256", "2048", "1000000000"),
    "--max-num-batched-tokens": ("1", "2048", "8193", "1000000000"),
    "--gpu-memory-utilization": ("0.000000001", "0.05", "0.5", "0.95", "1"),
    "--kv-cache-memory-bytes": ("1", "1000000000", "9" * 29),
    "--num-gpu-blocks-override": ("1", "1000", "1000000000000"),
    "--block-size": ("1", "7", "16", "128", "1000000000"),
    "--tensor-parallel-size": ("1", "2", "3", "8", "4096"),
    "--pipeline-parallel-size": ("1", "2", "5"),
    "--data-parallel-size": ("2", "64"),
    "--decode-context-parallel-size": ("2", "4"),
    "--dtype": ("half", "bfloat16", "float32"),
    "--quantization": ("fp8", "awq", "bitsandbytes"),
    "--kv-cache-dtype": ("fp8", "fp8_e5m2", "nvfp4"),
    "--attention-backend": ("FLASHINFER", "TRITON_ATTN", "FLASHMLA", "NONE_SUCH"),
    "--cpu-offload-gb": ("0", "2", "1000000"),
    "--swap-space": ("0", "64"),
    "--max-loras": ("1", "100"),
    "--max-cudagraph-capture-size": ("1", "1000000"),
    "--cudagraph-capture-sizes": ("1", "777777"),
    "--mamba-cache-mode": ("align", "all", "none"),
    "--speculative-config": (
        *('{"method": "mtp", "num_speculative_tokens": 2}', '{"method": "ngram", "num_speculative_tokens": 4096}'),
        '{"method": "eagle3", "model": "Qwen/Qwen3-0.6B", "num_speculative_tokens": 3}',
    ),
    "--limit-mm-per-prompt": ('{"image": 0}', '{"image": 1000000}', '{"video": {"count": 1, "num_frames": 99}}'),
    "--hf-overrides": ('{"num_hidden_layers": 1}', '{"rope_scaling": {"rope_type": "yarn", "factor": 1e9}}'),
    "--compilation-config": ("0", '{"cudagraph_mode": "NONE"}', '{"cudagraph_capture_sizes": [1, 3]}'),
    "--kv-transfer-config": ('{"kv_connector": "MultiConnector", "kv_connector_extra_config": 5}',),
}
SWITCHES = (
    *("--enforce-eager", "--enable-lora", "--enable-expert-parallel", "--disable-sliding-window"),
    *("--no-enable-prefix-caching", "--no-enable-chunked-prefill", "--language-model-only", "--no-such-flag"),
)
FLAGS = st.one_of(
    st.sampled_from([(name, value) for name, values in VALUES.items() for value in values]),
    st.sampled_from([(switch,) for switch in SWITCHES]),
)
CARDS = [part.label for part in parts()]
LAUNCHES = {
    "model": st.sampled_from(sorted(index())),
    "gpu": st.tuples(st.sampled_from((1, 1, 2, 8)), st.sampled_from(CARDS)),
    "release": st.sampled_from(RELEASES),
    "flags": st.lists(FLAGS, max_size=5, unique_by=lambda flag: flag[0]),
}


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(**LAUNCHES)
def test_a_plan_holds_together_or_there_is_one_error(
    model: str, gpu: tuple[int, str], release: str, flags: list[tuple[str, ...]]
) -> None:
    request = Request(gpu=f"{gpu[0]}x {gpu[1]}" if gpu[0] > 1 else gpu[1], vllm=release, offline=True)
    try:
        plan = plan_tokens([model, *(word for flag in flags for word in flag)], {}, request)
    except KvroomError:
        return
    _holds_together(plan)
    again = plan_tokens(plan.command[2:], {}, request)
    assert again.verdict.status == (plan.advice.after or plan.prediction).verdict.status


def _holds_together(plan: Plan) -> None:
    data = plan_data(plan)
    assert json.loads(json.dumps(data, allow_nan=False)) == data
    for entry in data["ledger"]:
        assert entry["low"] <= entry["expected"] <= entry["high"], entry
    assert all(type(line) is str and line.strip() for line in plan.predicted_log)
    assert (plan.verdict.message is not None) == (plan.verdict.stage is not None)
    assert plan.command[:2] == ("vllm", "serve")
    assert shlex.split(show_command(plan.command)) == list(plan.command)


@pytest.mark.parametrize("model", sorted(index())[::12])
@pytest.mark.parametrize("flag", ["--tensor-parallel-size=4096", "--pipeline-parallel-size=4096"])
def test_the_largest_machines_are_planned_at_once(model: str, flag: str) -> None:
    _holds_together(plan_tokens([model, flag], {}, Request(gpu="L4", vllm="0.33.0", offline=True)))
