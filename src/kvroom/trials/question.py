"""What a run is to find: the command, the goal and everything that trials have in common."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from hashlib import sha256
from typing import Any

from kvroom.redaction import clean_command
from kvroom.trials.changes import env_with, words_with
from kvroom.trials.command import Command
from kvroom.trials.figures import Load
from kvroom.trials.goal import Limit
from kvroom.trials.trial import Proposal
from kvroom.trials.ways import Terms
from kvroom.vllm.releases import Release


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What a run is to find."""

    command: Command
    terms: Terms
    limits: tuple[Limit, ...]
    load: Load
    release: Release
    gpu: str | None = None
    """The card with its count, for diagnoses; None on the CPU or where nobody knows."""
    gpus: int = 0
    repeats: int = 3
    most: int = 16
    timeout: float = 900.0
    launch_all: bool = False
    """Launch also what the ledger says cannot start."""
    offline: bool = False

    def asked(self) -> dict[str, Any]:
        """The question as it is stored, without secrets."""
        return {
            "command": clean_command([*self.command.front, *self.command.tokens]),
            "env": sorted(self.command.env),
            "goal": str(self.terms.goal),
            "limits": [str(limit) for limit in self.limits],
            "load": asdict(self.load),
            "repeats": self.repeats,
            "max_trials": self.most,
            "vllm_version": str(self.release),
            "platform": self.terms.platform.kind,
            "gpu": self.gpu,
            "keep": sorted(self.terms.pinned),
            "launch_all": self.launch_all,
        }

    @property
    def key(self) -> str:
        """Equal for the same question; secrets count by their digest."""
        exact = {**self.asked(), "exact": [*self.command.front, *self.command.tokens], "env": dict(self.command.env)}
        exact.pop("max_trials")  # a run may be taken up with more
        return sha256(json.dumps(exact, sort_keys=True).encode()).hexdigest()

    def launch_of(self, proposal: Proposal) -> tuple[list[str], dict[str, str]]:
        """The words after ``vllm serve`` and the environment of a proposal."""
        tokens = words_with(self.command.tokens, proposal.changes, self.release)
        return tokens, env_with(self.command.env, proposal.changes)
