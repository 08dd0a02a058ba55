"""What vLLM's own code is asked: a launch, the card it is to believe in, and the model's config as a folder."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from kvroom.errors import ModelError
from kvroom.ledger.setup import Setup
from kvroom.models.source import raw_config
from kvroom.vllm.rules import rules_for


@dataclass(frozen=True, slots=True)
class Question:
    """One launch for one rank."""

    argv: tuple[str, ...]
    """The words after ``vllm serve``, with the model as ``--model FOLDER``."""
    rank: int = 0
    available: tuple[int, ...] = ()
    """Bytes for the KV cache to plan with; empty: what the trace itself leaves."""


@dataclass(frozen=True, slots=True)
class Inquiry:
    """Questions about launches on one machine, answered by one process."""

    card: Mapping[str, Any]
    """``name``, ``capability`` (major, minor), ``total`` and ``used`` bytes."""
    env: Mapping[str, str]
    questions: tuple[Question, ...]
    without: tuple[str, ...] = ()
    """Packages that the build lacks."""

    def text(self) -> str:
        """As JSON, for the child's standard input."""
        return json.dumps(
            {
                "card": dict(self.card),
                "env": dict(self.env),
                "without": list(self.without),
                "questions": [asdict(each) for each in self.questions],
            }
        )


def inquiry_about(
    setup: Setup,
    words: Sequence[str],
    *,
    offline: bool,
    stack: ExitStack,
    ranks: Sequence[int] = (0,),
    available: Sequence[int] = (),
) -> Inquiry:
    """The questions about ``ranks`` of ``setup``, launched by ``words``; the config's folder lives as ``stack`` does.

    ``available`` are bytes for the KV cache to plan with. Raises a ModelError where the config cannot be had.
    """
    device = setup.machine.device
    argv = ("--model", str(_folder(setup, offline, stack)), *_without_model(words, setup.args.model))
    return Inquiry(
        card={
            "name": device.name,
            "capability": list(device.compute_capability or (9, 0)),
            "total": device.total_bytes,
            **({"multiprocessors": device.multiprocessors} if device.multiprocessors else {}),
            "used": device.total_bytes - setup.machine.free_before_launch(),
        },
        env=_environment(setup),
        questions=tuple(Question(argv, rank, tuple(available)) for rank in ranks),
        without=tuple(sorted(setup.without)),
    )


def _environment(setup: Setup) -> dict[str, str]:
    """The launch's variables that steer vLLM; it samples without FlashInfer where that may not be there."""
    env = {name: value for name, value in setup.args.env.items() if name.startswith("VLLM_")}
    if "flashinfer" in setup.without or not rules_for(setup.release)["flashinfer_required"]:
        env.setdefault("VLLM_USE_FLASHINFER_SAMPLER", "0")
    return env


def _without_model(words: Sequence[str], model: str) -> list[str]:
    """``words`` without the model, wherever it stands: first, or behind ``--model``."""
    kept: list[str] = []
    skip = False
    for word in words:
        if skip:
            skip = False
        elif word == "--model":
            skip = True
        elif word != model and not word.startswith("--model="):
            kept.append(word)
    return kept


def _folder(setup: Setup, offline: bool, stack: ExitStack) -> Path:
    """A folder with the model's config: its own where it is one, else made from what is known.

    Raises ModelError where a packaged config stands in for a checkpoint that is stored in another way.
    """
    own = Path(setup.args.model).expanduser()
    if own.is_dir():
        return own.resolve()
    name = setup.shape.name if not own.exists() else setup.args.model
    config, quantization = raw_config(name, offline=offline, revision=setup.args.revision)
    says = "quantization_config" in config or quantization is not None
    if setup.shape.quantization is not None and not says:
        raise ModelError(
            f"The config of {name}, which is at hand, does not say how {setup.args.model} is quantised.",
            "Give a folder that holds the checkpoint's own config.json.",
        )
    if name != setup.args.model:
        config = _as_long(config, setup)
    folder = Path(stack.enter_context(TemporaryDirectory(prefix="kvroom-model-")))
    (folder / "config.json").write_text(json.dumps(dict(config)), "utf-8")
    if quantization is not None:
        (folder / "hf_quant_config.json").write_text(json.dumps(dict(quantization)), "utf-8")
    return folder


def _as_long(config: Mapping[str, Any], setup: Setup) -> Mapping[str, Any]:
    """``config`` of a model that stands in, with the context that the launch's own model is believed to have."""
    return {**config, **{name: limit for name, limit in setup.shape.position_limits if name in config}}
