"""What vLLM's objects tell: settings, sizes of the worker that has least, why something is not known."""

from __future__ import annotations

from types import SimpleNamespace as Thing
from typing import Any

import pytest
from tests.plugin.fakes import (
    ACTIVATION,
    AVAILABLE,
    NO_VARIABLES,
    OTHER,
    REQUESTED,
    TOTAL,
    WEIGHTS,
    ExecutorOfOthers,
    UniProcExecutor,
    config,
    core,
    layer,
    pool,
    worker,
)

from kvroom.plugin.start import Start, start_of
from kvroom.plugin.table import table
from kvroom.plugin.worker import measured
from kvroom.units import GIB


def start(
    a_core: Any = None,
    a_config: Any = None,
    version: str = "0.26.0",
    environ: Any = NO_VARIABLES,
    found: Any = None,
) -> Start:
    return start_of(
        core() if a_core is None else a_core,
        config() if a_config is None else a_config,
        version,
        table(),
        environ,
        found,
    )


def test_the_ledger_closes() -> None:
    sizes = start().sizes
    assert sizes == {
        "requested": REQUESTED,
        "weights": WEIGHTS,
        "activation": ACTIVATION,
        "other": OTHER,
        "cuda_graphs": 0,
        "available": AVAILABLE,
        "total": TOTAL,
        "free": int(23.2 * GIB),
    }


@pytest.mark.parametrize(
    ("version", "counted", "peak", "graphs"),
    [
        ("0.26.0", True, ACTIVATION, GIB // 2),
        ("0.26.0", False, ACTIVATION, 0),
        ("0.32.0", True, ACTIVATION + GIB // 2, GIB // 2),
        ("0.32.0", False, ACTIVATION, 0),
    ],
)
def test_graphs_are_counted_as_the_release_counts_them(version: str, counted: bool, peak: int, graphs: int) -> None:
    one = worker(
        cudagraph_memory_estimate=GIB // 2,
        peak_activation_memory=peak,
        available_kv_cache_memory_bytes=AVAILABLE - graphs,
    )
    asked = UniProcExecutor(one, answer=lambda found: {**found, "graphs_counted": counted})
    sizes = start(core(asked), version=version).sizes
    assert (sizes["activation"], sizes["cuda_graphs"], sizes["other"]) == (ACTIVATION, graphs, OTHER)


def test_of_several_workers_the_poorest_counts() -> None:
    poor = worker(available_kv_cache_memory_bytes=AVAILABLE - GIB, peak_activation_memory=ACTIVATION + GIB)
    told = start(core(UniProcExecutor(worker(), poor), available=AVAILABLE - 1000))
    assert told.sizes["activation"] == ACTIVATION + GIB
    assert told.pool_bytes == AVAILABLE - GIB - 1000, "what vLLM keeps for others of the first worker it keeps of all"
    assert len(told.workers) == 2


def test_a_fixed_cache_has_no_profile() -> None:
    bare = worker(peak_activation_memory=None, available_kv_cache_memory_bytes=None)
    told = start(core(UniProcExecutor(bare), available=GIB), config(cache_config__kv_cache_memory_bytes=GIB))
    assert told.flags["kv_cache_memory_bytes"] == told.sizes["available"] == told.pool_bytes == GIB
    assert "activation" not in told.sizes
    assert told.sizes["weights"] == WEIGHTS


def test_settings_that_say_nothing_are_left_out() -> None:
    assert start().flags == {
        "gpu_memory_utilization": 0.9,
        "max_num_seqs": 256,
        "max_num_batched_tokens": 2048,
        "enforce_eager": True,
        "max_model_len": 131072,
    }
    more = config(
        cache_config__user_specified_block_size=True,
        lora_config=Thing(max_loras=4, max_lora_rank=32),
        speculative_config=Thing(method="ngram", model=None, num_speculative_tokens=3),
        model_config__multimodal_config=Thing(limit_per_prompt={"image": Thing(count=2), "video": 0}),
        parallel_config__tensor_parallel_size=2,
    )
    flags = start(a_config=more).flags
    assert flags["block_size"] == 16
    assert (flags["enable_lora"], flags["max_loras"], flags["max_lora_rank"]) == (True, 4, 32)
    assert flags["speculative_config"] == {"method": "ngram", "num_speculative_tokens": 3}
    assert flags["limit_mm_per_prompt"] == {"image": 2, "video": 0}
    assert flags["tensor_parallel_size"] == 2


def test_a_length_to_be_fitted_is_auto_until_it_is() -> None:
    auto = config(model_config__original_max_model_len=-1)
    assert start(a_config=auto).flags["max_model_len"] == -1
    assert start(a_config=auto, found=pool(10)).flags["max_model_len"] == 131072
    assert not start(a_config=config(model_config__original_max_model_len=None)).length_asked


@pytest.mark.parametrize(
    ("executor", "more", "version", "why"),
    [
        (ExecutorOfOthers(worker()), {}, "0.32.0", "ExecutorOfOthers"),
        (UniProcExecutor(worker()), {"parallel_config__nnodes": 2}, "0.32.0", "2 nodes"),
        (UniProcExecutor(worker()), {}, "0.99.0", "0.99.0 is none"),
        (UniProcExecutor(worker()), {}, "", "unknown release"),
    ],
)
def test_workers_are_asked_only_where_that_is_safe(
    executor: UniProcExecutor, more: dict[str, Any], version: str, why: str
) -> None:
    told = start(core(executor), config(**more), version)
    assert executor.asked == 0
    assert why in told.problems[0]
    assert told.sizes == {"available": AVAILABLE}


def test_workers_that_give_no_answer_leave_the_rest() -> None:
    class UniProcExecutor:
        def collective_rpc(self, *args: Any, **kwargs: Any) -> Any:
            raise TimeoutError("RPC call timed out")

    told = start(core(UniProcExecutor()))
    assert told.problems == ("the workers gave no answer (TimeoutError: RPC call timed out)",)
    assert told.flags["max_num_seqs"] == 256


def test_a_worker_never_raises() -> None:
    class Hostile:
        @property
        def worker(self) -> Any:
            raise RuntimeError("on purpose")

    assert measured(Hostile(), {}) == {"problem": "RuntimeError: on purpose"}
    odd = worker(requested_memory="many", available_kv_cache_memory_bytes=True, peak_activation_memory=1.5)
    wanted = {name: list(paths) for name, paths in table().worker.items()}
    found = measured(odd, wanted)
    assert found["activation"] == 1
    assert {"requested", "available"}.isdisjoint(found)


def test_backends_are_named_once_each() -> None:
    layers = {"a": layer("FLASHINFER"), "b": layer("FLASHINFER"), "c": layer("FLASH_ATTN")}
    mixed = worker(vllm_config=Thing(compilation_config=Thing(static_forward_context=layers)))
    assert start(core(UniProcExecutor(mixed))).backends == ("FLASHINFER", "FLASH_ATTN")


def test_who_asked_for_a_backend() -> None:
    flagged = config(attention_config__backend=Thing(name="FLASHINFER"))
    assert start(a_config=flagged).asked_backend == "FLASHINFER by --attention-backend"
    environ = {"VLLM_ATTENTION_BACKEND": "TRITON_ATTN", "HF_TOKEN": "hf_secret"}
    told = start(environ=environ)
    assert told.asked_backend == "TRITON_ATTN by VLLM_ATTENTION_BACKEND"
    assert dict(told.env) == {"VLLM_ATTENTION_BACKEND": "TRITON_ATTN"}
    assert start().asked_backend == ""


def test_the_pool_of_every_release() -> None:
    assert start(found=pool(100)).pool == {"blocks": 100, "max_model_len": 131072}
    assert start(found=(100, 0, Thing())).pool["blocks"] == 100, "to 0.17"
    newer = config(cache_config__kv_cache_size_tokens=1600, cache_config__kv_cache_max_concurrency=1.5)
    assert start(a_config=newer, found=pool(100)).pool["tokens"] == 1600
