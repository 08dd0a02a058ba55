"""What one worker measured, asked in the worker's own process.

The function travels there by name, so it leans on nothing but the standard library, and it never raises: an answer
that is missing would leave the other workers' answers lying in vLLM's queues.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any


def measured(wrapper: Any, wanted: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """Bytes by the names of ``wanted``, each from the first attribute path that is there; what else is known.

    Beside them ``backends`` (attention backends of the layers), ``device``, ``capability``, ``graphs_counted``;
    ``problem`` where something could not be read.
    """
    found: dict[str, Any] = {}
    try:
        worker = getattr(wrapper, "worker", None) or wrapper
        for name, paths in wanted.items():
            value = next((value for path in paths if (value := at(worker, path)) is not None), None)
            if isinstance(value, int | float) and not isinstance(value, bool):
                found[name] = int(value)
        found["backends"] = _backends(worker)
        found.update(_device(worker, sys.modules))
    except Exception as error:  # noqa: BLE001 - see above
        found["problem"] = f"{type(error).__name__}: {error}"[:300]
    return found


def at(thing: Any, path: str) -> Any:
    """What lies at a dotted path of attributes, None where there is nothing."""
    for name in path.split("."):
        thing = getattr(thing, name, None)
        if thing is None:
            return None
    return thing


def _backends(worker: Any) -> list[str]:
    layers = at(worker, "vllm_config.compilation_config.static_forward_context")
    if not isinstance(layers, dict):
        return []
    names = [name() for layer in layers.values() if callable(name := at(layer, "attn_backend.get_name"))]
    return list(dict.fromkeys(name for name in names if isinstance(name, str)))


def _device(worker: Any, modules: Mapping[str, Any]) -> dict[str, Any]:
    """Name and compute capability as vLLM's platform has them, and whether it counts its estimate of the graphs."""
    platform = at(modules.get("vllm.platforms"), "current_platform")
    index = at(worker, "device.index") or 0
    found: dict[str, Any] = {"device": str(platform.get_device_name(index))} if platform is not None else {}
    if platform is not None and at(worker, "device.type") == "cuda":
        capability = platform.get_device_capability(index)
        if capability is not None:
            found["capability"] = [int(capability[0]), int(capability[1])]
    counted = getattr(modules.get("vllm.envs"), "VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS", None)
    if counted is not None:
        found["graphs_counted"] = bool(counted)
    return found
