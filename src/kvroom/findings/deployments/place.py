"""A predicted launch in the pod that a manifest gives it, and how long such a launch takes to start."""

from __future__ import annotations

from dataclasses import dataclass

from kvroom.findings.finding import Evidence
from kvroom.launches.launch import Pod
from kvroom.ledger.predict import Prediction
from kvroom.units import GIB

FAST_BYTES_A_SECOND = 2.2 * GIB
"""A quarter of 85 public starts with more than 3 GiB of weights loaded faster (``Model loading took``, per GPU)."""
SLOW_BYTES_A_SECOND = 0.15 * GIB
"""Three quarters of them loaded faster; the slower ones mostly downloaded meanwhile."""
FAST_INIT_SECONDS = 20
"""A tenth of 85 public starts took less from profiling to captured graphs (``init engine ... took``: 11 s to 23 s)."""
SLOW_INIT_SECONDS = 410
"""95 of 100 took less."""


@dataclass(frozen=True, slots=True)
class Placed:
    """One launch and the pod around it."""

    prediction: Prediction
    pod: Pod

    @property
    def world(self) -> int:
        """GPUs that the parallel sizes ask for, over all nodes and replicas inside of one server."""
        args = self.prediction.setup.args
        size = args.tensor_parallel_size * args.pipeline_parallel_size * args.prefill_context_parallel_size
        return size * args.data_parallel_size

    @property
    def weights_bytes(self) -> int | None:
        """Weights of one GPU, None where the launch stops before they are known."""
        ledger = self.prediction.ledger
        return None if ledger is None else ledger.weights.expected

    def shown(self, part: str, text: str) -> Evidence:
        """``text`` as the evidence on the line of ``part`` of the manifest."""
        return Evidence(text, self.pod.lines.get(part) or self.pod.lines.get("container"))


def startup_seconds(weights_bytes: int, rate: float, init_seconds: int) -> int:
    """Seconds until the server answers: loading at ``rate`` bytes a second, then the rest of the start."""
    return round(weights_bytes / rate) + init_seconds
