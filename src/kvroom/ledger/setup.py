"""What is predicted: a model on a machine, launched by one vLLM release with the given arguments."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from kvroom.devices.device import Machine
from kvroom.ledger.entries import Basis
from kvroom.models.shape import ModelShape
from kvroom.vllm.args import EngineArgs
from kvroom.vllm.releases import Release


@dataclass(frozen=True, slots=True)
class Setup:
    """One launch, with what is already known of it from a log."""

    shape: ModelShape
    args: EngineArgs
    machine: Machine
    release: Release
    draft: ModelShape | None = None
    """The separate model that proposes tokens, when one is configured."""
    measured: Mapping[str, int] = field(default_factory=dict)
    """Entries read from a log of this machine, in bytes by entry name; they replace the prediction."""
    traced: tuple[Mapping[str, int], ...] = ()
    """Entries that vLLM's own code gave without a GPU, in bytes by entry name, for each pipeline stage."""
    logged_args: EngineArgs | None = None
    """Arguments of the launch that logged ``measured`` or was ``traced``, where they differ from this one's."""
    without: frozenset[str] = frozenset()
    """Packages that the vLLM environment lacks, e.g. ``flashinfer``."""
    repeats: int = 0
    """Bytes by which what is available may be another at the next start of the very launch that was measured."""

    def with_args(self, **changes: object) -> Setup:
        """The same setup with some arguments changed; what was measured stays that of the old arguments."""
        logged = (self.logged_args or self.args) if self.measured or self.traced else None
        return replace(self, args=replace(self.args, **changes), logged_args=logged)  # type: ignore[arg-type]

    def known(self, name: str, stage: int) -> tuple[int, Basis] | None:
        """The bytes of entry ``name`` on ``stage`` and where they are from, None where they must be predicted."""
        if name in self.measured:
            return self.measured[name], Basis.MEASURED
        traced = self.traced[stage] if stage < len(self.traced) else {}
        return (traced[name], Basis.TRACED) if name in traced else None
