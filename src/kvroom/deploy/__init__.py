"""A plan handed over: the command, docker line, compose file or Kubernetes manifest that starts it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kvroom.deploy.compose import compose_file
from kvroom.deploy.deployment import Deployment, deployment_of
from kvroom.deploy.kubernetes import manifest
from kvroom.deploy.lines import command_line, docker_line
from kvroom.errors import UsageError
from kvroom.plans.plan import Plan

__all__ = ["KINDS", "emit"]

_WRITERS: Mapping[str, Callable[[Deployment], str]] = {
    "command": command_line,
    "docker": docker_line,
    "compose": compose_file,
    "k8s": manifest,
}
KINDS = tuple(_WRITERS)
"""What ``emit`` writes."""


def emit(plan: Plan, kind: str) -> str:
    """The deployment of ``plan`` as text that ``kvroom check`` reads with the same verdict and pool.

    Where the plan does not fit, its remedies are in it, and a comment names them. Raises UsageError for an
    unknown ``kind``, for a launch that no flag makes start, and for one that a single host cannot hold.
    """
    writer = _WRITERS.get(kind)
    if writer is None:
        raise UsageError(f"'{kind[:40]}' is nothing that can be written.", f"Known: {', '.join(KINDS)}.")
    return writer(deployment_of(plan, alone=kind == "command"))
