"""What vLLM's own code allocates in the profile run, as factors on the formulas of ``activation``.

The factors are made by ``scripts/traced_peaks.py`` from traces of each release: a few models, each with the forward
pass alone and with the sampler alone. A launch takes those of its architecture in its release; an architecture that
was not traced takes the spread of its kind.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from statistics import median

from kvroom.ledger.estimate import Estimate
from kvroom.models.shape import ModelShape
from kvroom.vllm.args import EngineArgs
from kvroom.vllm.releases import Release, parse_release
from kvroom.vllm.settings import Settings

_SAME, _ALIKE, _OTHER_RELEASE = 0.02, 0.05, 0.03
"""Share by which a factor may be off: that of the same architecture, of its kind, and of a neighbouring release."""


@dataclass(frozen=True, slots=True)
class Row:
    """The factors of one traced model."""

    architecture: str
    kind: str
    """``dense``, ``moe``, ``mla`` or ``state``."""
    quantized: bool
    parallel: bool
    """Traced on more than one GPU."""
    runner: str
    forward: float
    sampler: float | None
    """None where the forward pass hides the sampler."""


@dataclass(frozen=True, slots=True)
class Factors:
    """Low, expected and high factors on the two phases of the formulas."""

    forward: Estimate
    sampler: Estimate | None
    exact: bool
    """From the same architecture; else from its kind."""
    words: str


def kind_of(shape: ModelShape) -> str:
    """What a model's profile run resembles most."""
    if shape.has_state:
        return "state"
    if shape.mla is not None:
        return "mla"
    return "moe" if shape.is_moe else "dense"


def factors_for(shape: ModelShape, args: EngineArgs, settings: Settings) -> Factors | None:
    """The factors of a launch; None where no release like its own was traced."""
    release = _nearest(settings.rules.release)
    if release is None:
        return None
    rows = [row for row in _table()[release] if row.runner == settings.model_runner]
    same = [row for row in rows if row.architecture == shape.architecture]
    chosen = same or [row for row in rows if row.kind == kind_of(shape)]
    quantized, parallel = shape.quantization is not None, args.tensor_parallel_size > 1
    chosen = [row for row in chosen if row.quantized == quantized] or chosen
    chosen = [row for row in chosen if row.parallel == parallel] or chosen
    if not chosen:
        return None
    off = (_SAME if same else _ALIKE) + (_OTHER_RELEASE if release != settings.rules.release else 0.0)
    sampled = [row.sampler for row in chosen if row.sampler is not None]
    sampled = sampled or [row.sampler for row in rows if row.sampler is not None]
    whose = shape.architecture if same else f"{len(chosen)} {kind_of(shape)} models"
    return Factors(
        _spread([row.forward for row in chosen], off),
        _spread(sampled, off) if sampled else None,
        bool(same),
        f"scaled as the code of {release} allocates it for {whose}",
    )


def _spread(values: Sequence[float], off: float) -> Estimate:
    least, most = min(values), max(values)  # below nought where the formula counts workspaces that a release has not
    return Estimate(least - abs(least) * off, median(values), most + abs(most) * off)


def _nearest(release: Release) -> Release | None:
    """The last release traced up to ``release``, or the next one of the same minor release."""
    known = sorted(_table())
    before = [each for each in known if each <= release]
    after = [each for each in known if each > release and each[:2] == release[:2]]
    return before[-1] if before else after[0] if after else None


@cache
def _table() -> dict[Release, tuple[Row, ...]]:
    text = files("kvroom.data.vllm").joinpath("traced", "activation.json").read_text("utf-8")
    releases = json.loads(text)["releases"]
    return {parse_release(name): tuple(Row(**row) for row in rows) for name, rows in releases.items()}
