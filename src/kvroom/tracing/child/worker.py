"""vLLM's own worker, step by step: what it resolves, holds after loading, profiles, and leaves for the KV cache."""

from __future__ import annotations

import dataclasses
import gc
from collections.abc import Callable
from typing import Any

import torch

from . import modalities, moved, platform
from .memory import Card, IntegerDevices

Step = Callable[[str], None]


_FIXED: dict[str, Any] = {
    "load_format": "dummy",
    "enforce_eager": True,
    "distributed_executor_backend": "mp",
    "enable_sleep_mode": False,  # needs an allocator that is compiled
    "swap_space": 0,  # held against the memory of this machine
    "reasoning_parser": "",  # needs the tokenizer, and moves no memory
    "tool_call_parser": None,
}
"""Options that have nothing to say here, or cannot be had."""


def load_modules() -> None:
    """Import what every question needs."""
    import vllm.engine.arg_utils
    import vllm.v1.worker.gpu_worker  # noqa: F401


def configuration(argv: list[str]) -> Any:
    """The VllmConfig of ``vllm serve ARGV``, resolved by vLLM; unknown options are left to the server."""
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.usage.usage_lib import UsageContext

    parser = AsyncEngineArgs.add_cli_args(moved.need("FlexibleArgumentParser")())
    options, _ = parser.parse_known_args(argv)
    options.skip_tokenizer_init = True
    modalities.with_what_is_there(options)
    for name, value in _FIXED.items():
        if hasattr(options, name):
            setattr(options, name, value)
    arguments = AsyncEngineArgs.from_cli_args(options)
    return arguments.create_engine_config(usage_context=UsageContext.OPENAI_API_SERVER)


def no_weights_are_made_up() -> None:
    """The dummy loader fills weights with random numbers; there is nothing to fill."""
    import vllm.model_executor.model_loader.dummy_loader as loader
    import vllm.model_executor.model_loader.weight_utils as weights

    for home in (loader, weights):
        for name in ("initialize_dummy_weights", "initialize_single_dummy_weight"):
            if hasattr(home, name):
                setattr(home, name, lambda *_, **__: None)


def traced(config: Any, card: Card, rank: int, step: Step) -> dict[str, Any]:
    """What the worker of ``rank`` answers: bytes, specs, backends, and the tensors alive at the peak."""
    from vllm.config import set_current_vllm_config
    from vllm.v1.worker.gpu_worker import Worker

    parallel = config.parallel_config
    answer: dict[str, Any] = {}
    with set_current_vllm_config(config):
        step("set up the ranks")
        world = getattr(parallel, "world_size_across_dp", parallel.world_size)
        platform.process_groups(world, rank)
        worker = Worker(
            vllm_config=config,
            local_rank=0,  # every rank is traced on the first card
            rank=rank,
            distributed_init_method="tcp://127.0.0.1:1",
            is_driver_worker=rank == 0,
        )
        with torch.inference_mode(), IntegerDevices(), card:
            worker.init_device()
            answer["runner"] = type(worker.model_runner).__module__
            answer["requested"] = int(worker.requested_memory)
            step("build the model")
            worker.load_model()
            platform.block_size_of_backends(config)
            gc.collect()
            answer["weights"] = int(worker.model_runner.model_memory_usage)
            step("run the profile pass")
            held = card.current
            card.reset_peak()
            worker.model_runner.profile_run()
            answer["activation"] = card.peak - held
            answer["at_peak"] = [
                {"bytes": size, "operator": name, "shape": list(shape), "dtype": dtype}
                for size, name, shape, dtype in card.at_peak
            ]
            answer |= {"phase": card.phase, "place": card.place}
            answer["left_for_cache"] = answer["requested"] - _not_cache(answer, held)
            step("plan the KV cache")
            specs = worker.get_kv_cache_spec()
        answer["unsure"] = dict(card.unsure)
    answer["specs"] = specs
    return answer


def _not_cache(answer: dict[str, Any], held: int) -> int:
    """Bytes that the release takes from the KV cache; ``held`` are those alive before the profile pass.

    Since 0.27 what the runner holds counts as well; before, the rise of torch's peak came on top of the weights.
    """
    fields = {each.name for each in dataclasses.fields(moved.need("MemoryProfilingResult"))}
    before = held if "transient_peak_headroom" in fields else answer["weights"]
    return int(before + answer["activation"])
