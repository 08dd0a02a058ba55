"""KVR183: the probes restart the container before it can have started."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kvroom.findings.deployments.place import (
    FAST_BYTES_A_SECOND,
    FAST_INIT_SECONDS,
    SLOW_BYTES_A_SECOND,
    SLOW_INIT_SECONDS,
    startup_seconds,
)
from kvroom.findings.finding import Finding, Rule, Severity, explanation
from kvroom.units import show_bytes

if TYPE_CHECKING:
    from kvroom.findings.deployments.place import Placed

RULE = Rule(
    "KVR183",
    "probe-shorter-than-loading",
    Severity.WARNING,
    "The probes restart the container before it can have loaded its weights.",
    explanation(
        what="""
            Compares the time that the startup probe (without one, the liveness probe) allows with the time to load
            the weights of one GPU and to profile, compile and capture: at 2.2 GiB/s and 20 s, a fast start.
            """,
        why="""
            The server answers only after loading.
            A container that is killed while it loads begins anew, and never comes up; its log ends without an error.
            Of 85 public starts a quarter loaded faster than 2.2 GiB/s a GPU, a quarter slower than 0.15 GiB/s.
            """,
        example="`livenessProbe` with `initialDelaySeconds: 60`, no startup probe, and 130 GiB of weights on two GPUs.",
        cure="A `startupProbe` on /health whose `periodSeconds` x `failureThreshold` covers a slow start.",
        since="All releases.",
        references="Kubernetes: Configure Liveness, Readiness and Startup Probes",
    ),
)


def find(placed: Placed) -> Iterator[Finding]:
    """The finding where even a fast start takes longer than the probes wait."""
    weights, allowed = placed.weights_bytes, placed.pod.startup_seconds
    if weights is None or allowed is None:
        return
    fast = startup_seconds(weights, FAST_BYTES_A_SECOND, FAST_INIT_SECONDS)
    if allowed >= fast:
        return
    slow = startup_seconds(weights, SLOW_BYTES_A_SECOND, SLOW_INIT_SECONDS)
    yield RULE.found(
        f"The probes allow {allowed} s; a fast start with {show_bytes(weights)} of weights a GPU takes {fast} s.",
        evidence=(placed.shown("probe", f"{allowed} s"),),
        advice=(f"startupProbe: periodSeconds 10, failureThreshold {-(-slow // 10)}, which covers a slow start.",),
    )
