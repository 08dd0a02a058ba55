"""What can be turned on this platform: which flag gives the cache more memory, and which trades exist."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from kvroom.trials.changes import ENV, Changes
from kvroom.trials.trial import Forecast
from kvroom.units import GIB, MIB, cdiv
from kvroom.vllm.args import EngineArgs

CEILING = 0.95
"""Utilisation that is not exceeded: vLLM allocates beside its budget, and a trial must not run into the end."""
STEP = 0.02
"""One step of utilisation."""
_SPACE = "VLLM_CPU_KVCACHE_SPACE"
_HOST_SHARE = 0.8
"""Share of the machine's free memory that the cache may take on a CPU."""
_USUAL = 0.9
_OFFLOAD_GB = (4, 8, 16)


@dataclass(frozen=True, slots=True)
class Platform:
    """Where the server computes: ``gpu`` or ``cpu``."""

    kind: str
    free_bytes: int | None = None
    """Of the machine's memory, where it computes on the CPU."""

    @property
    def profiles(self) -> bool:
        """Whether batch sizes take memory from the cache: only GPUs run a profile."""
        return self.kind == "gpu"

    def memory_steps(self, args: EngineArgs, now: Changes, forecast: Forecast | None) -> Iterator[Changes]:
        """Ever more memory for the cache, step by step: the flag that the command uses for it, within bounds."""
        if args.num_gpu_blocks_override is not None and now.get("num_gpu_blocks_override", 0) is not None:
            yield {"num_gpu_blocks_override": None}
        elif args.kv_cache_memory_bytes is not None or "kv_cache_memory_bytes" in now:
            yield from self._bytes(int(now.get("kv_cache_memory_bytes") or args.kv_cache_memory_bytes or 0), forecast)
        elif self.kind == "cpu" and (_SPACE in args.env or ENV + _SPACE in now):
            space = _whole(str(now.get(ENV + _SPACE, args.env.get(_SPACE, "1"))))
            for size in self._bytes(space * GIB, forecast):
                found = max(space + 1, cdiv(int(size["kv_cache_memory_bytes"] or 0), GIB))
                if self.free_bytes is None or found * GIB <= self.free_bytes * _HOST_SHARE:
                    yield {ENV + _SPACE: found}
        else:
            share = float(now.get("gpu_memory_utilization") or args.gpu_memory_utilization or _USUAL)
            while round(share + STEP, 4) <= CEILING:
                share = round(share + STEP, 4)
                yield {"gpu_memory_utilization": share}

    def _bytes(self, size: int, forecast: Forecast | None) -> Iterator[Mapping[str, int]]:
        """What one request needs and a tenth more, then twice as much, while it is there."""
        most = None if self.free_bytes is None else int(self.free_bytes * _HOST_SHARE)
        needed = (forecast.needed_bytes if forecast else None) or 0
        step = cdiv(int(needed * 1.1), MIB) * MIB if needed > size else 2 * size
        while size and (most is None or step <= most) and step <= 1 << 44:
            yield {"kv_cache_memory_bytes": step}
            step *= 2

    def less_memory(self, args: EngineArgs, now: Changes) -> Changes | None:
        """One step less; None where the cache's size is given, or little is left."""
        if args.kv_cache_memory_bytes is not None or _SPACE in args.env:
            return None
        share = float(now.get("gpu_memory_utilization") or args.gpu_memory_utilization or _USUAL)
        return {"gpu_memory_utilization": round(share - 2 * STEP, 4)} if share > 0.5 else None

    def trades(self, args: EngineArgs, now: Changes) -> Iterator[Changes]:
        """What costs something else: an fp8 cache, then weights in host memory."""
        if self.kind != "gpu":
            return
        if args.kv_cache_dtype in (None, "auto") and "kv_cache_dtype" not in now:
            yield {"kv_cache_dtype": "fp8"}
        for size in _OFFLOAD_GB:
            if size > max(args.cpu_offload_gb, float(now.get("cpu_offload_gb") or 0)):
                yield {"cpu_offload_gb": size}


def _whole(text: str) -> int:
    return int(text) if text.isdecimal() and len(text) < 6 else 1
