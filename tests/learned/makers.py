"""Measurements made by hand, and launches to use them for."""

from __future__ import annotations

from typing import Any

from kvroom.learned.key import fingerprint, kept_env, kept_words, world
from kvroom.learned.measurement import Measurement
from kvroom.ledger.predict import Prediction, predict
from kvroom.ledger.setup import Setup
from kvroom.plans.make import plan_tokens
from kvroom.plans.request import Request
from kvroom.units import GIB
from kvroom.vllm.releases import Release

LLAMA = "meta-llama/Llama-3.1-8B-Instruct"


def prediction(model: str = LLAMA, *words: str, gpu: str = "RTX 4090", vllm: str = "0.11.0", **more: Any) -> Prediction:
    """What the rules say of a launch."""
    request = Request(gpu=gpu, vllm=vllm, offline=True, **{"gpu_memory": None, **more})
    return plan_tokens([model, *words], {}, request).prediction


def measured(of: Prediction, learned: str = "2026-01-02T03:04:05+00:00", **gib: float) -> Measurement:
    """What the launch ``of`` would have taught with these sizes, in GiB."""
    setup = of.setup
    return Measurement(
        gpu=setup.machine.device.name,
        gpus=world(setup.args),
        release=setup.release,
        model=setup.args.model,
        shape=fingerprint(setup.shape, setup.draft),
        words=kept_words(setup.args, of.settings, setup.release),
        env=kept_env(setup.args.env),
        backend=of.backend.name if of.backend else "",
        sizes={name: int(size * GIB) for name, size in gib.items()},
        learned=learned,
    )


def plain(number: int = 0) -> Measurement:
    """One of any number of measurements that differ."""
    return Measurement(
        gpu="NVIDIA L4",
        gpus=1,
        release=Release(0, 11, 0),
        model="org/model",
        shape="0123456789abcdef",
        words=("--max-num-seqs", "64"),
        sizes={"available": number},
        learned=f"2026-01-02T03:04:{number % 60:02}+00:00",
    )


def available(setup: Setup) -> int:
    """The bytes that a setup leaves for the KV cache."""
    ledger = predict(setup).ledger
    assert ledger is not None
    return ledger.available.expected
