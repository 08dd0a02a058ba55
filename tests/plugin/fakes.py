"""An engine core as the plugin sees it: plain objects with the attributes of vLLM's, and no vLLM."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import SimpleNamespace as Thing
from typing import Any

from kvroom.units import GIB

MODEL = "meta-llama/Llama-3.1-8B-Instruct"
TOTAL = int(23.64 * GIB)
REQUESTED = int(TOTAL * 0.9)
WEIGHTS, ACTIVATION, OTHER = int(14.99 * GIB), int(1.23 * GIB), int(0.31 * GIB)
AVAILABLE = REQUESTED - WEIGHTS - ACTIVATION - OTHER


def config(**more: Any) -> Thing:
    """A VllmConfig; keywords are dotted names with ``__`` for the dot."""
    found = Thing(
        model_config=Thing(
            model=MODEL,
            max_model_len=131072,
            original_max_model_len=131072,
            enforce_eager=True,
            disable_sliding_window=False,
            multimodal_config=None,
        ),
        cache_config=Thing(
            gpu_memory_utilization=0.9,
            kv_cache_memory_bytes=None,
            num_gpu_blocks_override=None,
            cache_dtype="auto",
            cpu_offload_gb=0,
            block_size=16,
            user_specified_block_size=False,
        ),
        scheduler_config=Thing(max_num_seqs=256, max_num_batched_tokens=2048),
        parallel_config=Thing(
            tensor_parallel_size=1,
            pipeline_parallel_size=1,
            world_size=1,
            nnodes=1,
            data_parallel_rank=0,
        ),
        device_config=Thing(device_type="cuda"),
        attention_config=Thing(backend=None),
        lora_config=None,
        speculative_config=None,
    )
    for name, value in more.items():
        *path, last = name.split("__")
        place = found
        for part in path:
            place = getattr(place, part)
        setattr(place, last, value)
    return found


def layer(backend: str) -> Thing:
    """An attention layer."""
    return Thing(attn_backend=Thing(get_name=lambda: backend))


def worker(**more: Any) -> Thing:
    """A worker that profiled, as 0.10.2 to 0.26 keep it; keywords replace attributes."""
    layers = {"layers.0.attn": layer("FLASH_ATTN"), "layers.1.attn": layer("FLASH_ATTN"), "layers.2.mlp": Thing()}
    context = Thing(compilation_config=Thing(static_forward_context=layers))
    known: dict[str, Any] = {
        "model_runner": Thing(model_memory_usage=WEIGHTS),
        "peak_activation_memory": ACTIVATION,
        "available_kv_cache_memory_bytes": AVAILABLE,
        "requested_memory": REQUESTED,
        "init_snapshot": Thing(total_memory=TOTAL, free_memory=int(23.2 * GIB)),
        "vllm_config": context,
        "device": Thing(type="cuda", index=0),
    }
    return Thing(**{**known, **more})


class UniProcExecutor:
    """Asks workers in this process."""

    def __init__(self, *workers: Any, answer: Callable[[dict[str, Any]], dict[str, Any]] | None = None) -> None:
        self.workers, self.asked = workers, 0
        self._answer = answer or (lambda found: {**found, "device": "NVIDIA GeForce RTX 4090", "capability": [8, 9]})

    def collective_rpc(
        self, method: Callable[..., dict[str, Any]], timeout: float | None = None, args: tuple[Any, ...] = ()
    ) -> list[dict[str, Any]]:
        self.asked += 1
        return [self._answer(method(Thing(worker=each), *args)) for each in self.workers]


class ExecutorOfOthers(UniProcExecutor):
    """One that the plugin does not know."""


def core(executor: Any = None, available: int = AVAILABLE) -> Thing:
    """An engine core after its workers answered."""
    return Thing(
        model_executor=UniProcExecutor(worker()) if executor is None else executor,
        available_gpu_memory_for_kv_cache=available,
    )


class Lines:
    """A log that keeps its lines."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.warnings: list[str] = []

    def info(self, line: str) -> None:
        self.lines.append(line)

    def warning(self, line: str) -> None:
        self.warnings.append(line)


def pool(blocks: int) -> Thing:
    """What sizing the cache returns."""
    return Thing(num_blocks=blocks)


NO_VARIABLES: Mapping[str, str] = {}
