"""vLLM's CUDA platform and process groups, for a machine that is not there."""

from __future__ import annotations

import sys
from typing import Any

import torch

from .pretend import CARDS, Description


def install(description: Description) -> None:
    """Make vLLM run on its own CUDA platform, whose questions to the driver ``description`` answers."""
    from vllm import platforms

    if hasattr(platforms, "vllm_version_matches_substr"):
        matches = platforms.vllm_version_matches_substr
        platforms.vllm_version_matches_substr = lambda text: False if text == "cpu" else matches(text)
    from vllm.platforms.cuda import CudaPlatformBase
    from vllm.platforms.interface import DeviceCapability

    answers: dict[str, Any] = {
        "get_device_capability": lambda cls, device_id=0: DeviceCapability(*description.capability),
        "get_device_name": lambda cls, device_id=0: description.name,
        "get_device_uuid": lambda cls, device_id=0: "GPU-pretended",
        "get_device_total_memory": lambda cls, device_id=0: description.total,
        "is_fully_connected": lambda cls, ids: True,
        "num_compute_units": lambda cls, device_id=0: description.multiprocessors,
        "device_count": lambda cls: CARDS,
        "get_device_communicator_cls": lambda cls: (
            "vllm.distributed.device_communicators.base_device_communicator.DeviceCommunicatorBase"
        ),
        "check_if_supports_dtype": lambda cls, dtype: None,
        "is_integrated_gpu": lambda cls, device_id=0: False,
        "use_custom_allreduce": lambda cls: False,
        "set_device": lambda cls, device: None,
        "log_warnings": lambda cls: None,
        "is_pin_memory_available": lambda cls: True,
        "get_all_device_numa_nodes": lambda cls: None,
        "is_arch_support_pdl": lambda cls: description.capability[0] >= 9,
        "support_static_graph_mode": lambda cls: True,
        "get_current_memory_usage": lambda cls, device=None: torch.cuda.memory_allocated(),
    }
    kind = type("PretendedCuda", (CudaPlatformBase,), {name: classmethod(each) for name, each in answers.items()})
    platforms._current_platform = kind()
    for name, loaded in list(sys.modules.items()):
        known = getattr(loaded, "__dict__", {}).get("current_platform")
        if name.startswith("vllm") and known is not None and loaded is not platforms:
            loaded.current_platform = platforms._current_platform  # type: ignore[attr-defined]


def registry_in_this_process() -> None:
    """Let vLLM inspect model classes here, not in a process that knows nothing of the pretended card."""
    from vllm.model_executor.models import registry

    if hasattr(registry, "_run_in_subprocess"):
        registry._run_in_subprocess = lambda function: function()


def process_groups(world_size: int, rank: int) -> None:
    """Process groups of ``world_size`` ranks without the others: torch's fake backend."""
    from torch import distributed
    from torch.testing._internal.distributed.fake_pg import FakeStore

    distributed.init_process_group("fake", rank=rank, world_size=world_size, store=FakeStore())
    real = distributed.new_group

    def group(ranks: Any = None, *_: Any, **kwargs: Any) -> Any:
        named = {"group_desc": kwargs["group_desc"]} if "group_desc" in kwargs else {}
        return real(ranks, backend="fake", **named)

    distributed.new_group = group
    import vllm.distributed.parallel_state as state

    if hasattr(state, "in_the_same_node_as"):
        state.in_the_same_node_as = lambda group, source_rank=0: [True] * world_size
    from vllm.distributed.device_communicators.shm_broadcast import MessageQueue

    MessageQueue.create_from_process_group = staticmethod(lambda *_, **__: None)


def block_size_of_backends(config: Any) -> None:
    """What the executor asks of the platform once the layers are there, since 0.18."""
    from vllm.platforms import current_platform

    update = getattr(current_platform, "update_block_size_for_backend", None)
    if callable(update):
        update(config)
