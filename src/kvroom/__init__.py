"""Is there room in this GPU's KV cache for my context and my users, and what must I change if not?

``kvroom.plan("Qwen/Qwen3-8B", gpu="RTX 4090", max_model_len=32768)`` answers as the command line does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvroom.version import __version__

if TYPE_CHECKING:
    from kvroom.doctor.diagnose import diagnose
    from kvroom.doctor.diagnosis import Diagnosis
    from kvroom.doctor.learn import learn
    from kvroom.environment.record import environment_record
    from kvroom.plans.check import check
    from kvroom.plans.make import plan
    from kvroom.plans.plan import Plan

__all__ = ["Diagnosis", "Plan", "__version__", "check", "diagnose", "environment_record", "learn", "plan"]

_HOME = {
    "Diagnosis": "kvroom.doctor.diagnosis",
    "Plan": "kvroom.plans.plan",
    "check": "kvroom.plans.check",
    "diagnose": "kvroom.doctor.diagnose",
    "environment_record": "kvroom.environment.record",
    "learn": "kvroom.doctor.learn",
    "plan": "kvroom.plans.make",
}


def __getattr__(name: str) -> object:
    """Load the public names when they are first used, so that importing kvroom stays cheap."""
    if name in _HOME:
        from importlib import import_module

        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module 'kvroom' has no attribute '{name}'")
