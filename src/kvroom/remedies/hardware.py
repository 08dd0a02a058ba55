"""Remedies that change the machine or the checkpoint: parallelism, a bigger card, quantised weights."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from kvroom.devices.catalogue import larger_devices
from kvroom.devices.device import Machine
from kvroom.ledger.predict import Prediction, Setup, predict
from kvroom.ledger.verdict import Status
from kvroom.models.quantization import assume_quantization
from kvroom.models.shape import ModelShape
from kvroom.remedies.limits import shorter_context
from kvroom.remedies.remedy import Candidates, Impossible, Remedy, room
from kvroom.units import show_bytes
from kvroom.vllm.parallel import deals


def more_gpus(before: Prediction) -> Candidates:
    """Tensor parallelism over twice as many GPUs, or more, that divides the attention heads."""
    setup = before.setup
    args = setup.args
    size = args.tensor_parallel_size * 2
    others = args.pipeline_parallel_size * args.data_parallel_size * args.prefill_context_parallel_size
    while size <= 16:
        if deals(setup.shape.heads, setup.shape.kv_heads, size):
            machine = replace(setup.machine, count=max(setup.machine.count, size * others))
            after = predict(replace(setup.with_args(tensor_parallel_size=size), machine=machine))
            if after.verdict.status is Status.FITS:
                yield Remedy(
                    ("--tensor-parallel-size", str(size)),
                    (("tensor_parallel_size", size),),
                    f"{size} GPUs share the weights and the KV heads",
                    "uses the GPUs that are there"
                    if size * others <= setup.machine.count
                    else f"needs {size * others} such GPUs",
                    after,
                )
                return
        size *= 2


def quantised_weights(before: Prediction) -> Candidates:
    """A 4-bit checkpoint of the same model, where this one is not quantised; with a shorter length if need be."""
    setup, ledger = before.setup, before.ledger
    if setup.shape.quantization is not None or setup.args.quantization or ledger is None:
        return
    after = predict(replace(setup, shape=_in_four_bits(setup.shape), measured={}, logged_args=None))
    if after.ledger is None:
        return
    saved = ledger.weights.expected - after.ledger.weights.expected
    if saved <= 0:
        return
    name, price = "a 4-bit checkpoint", "another checkpoint, and some quality"
    if after.verdict.status is Status.FAILS:
        for shorter in shorter_context(after):
            if isinstance(shorter, Remedy) and room(shorter.after) < room(after):
                name, price, after = f"{name} and {' '.join(shorter.flags)}", f"{price}; {shorter.price}", shorter.after
    why = f"a 4-bit checkpoint (AWQ, GPTQ or w4a16) of this model frees {show_bytes(saved)} a GPU"
    yield Remedy((), (), why, price, after, name)


@lru_cache(maxsize=64)
def _in_four_bits(shape: ModelShape) -> ModelShape:
    """The model with AWQ weights; remembered, since everything about a model is cached by identity."""
    return replace(shape, quantization=assume_quantization("awq"))


def bigger_card(before: Prediction) -> Candidates:
    """The smallest card of the same vendor in the catalogue on which the same launch surely fits."""
    setup = before.setup
    if before.ledger is None or setup.args.num_gpu_blocks_override is not None:
        return
    for device in larger_devices(setup.machine.device):
        after = predict(_on(setup, Machine(device, setup.machine.count)))
        if after.verdict.status is Status.FITS:
            yield Remedy(
                (),
                (),
                f"the smallest {device.vendor} card in the catalogue that surely holds the launch as it is",
                "other hardware",
                after,
                f"another card: {device.name}",
            )
            return
    yield Impossible(
        "a bigger card", f"no larger {setup.machine.device.vendor} card in the catalogue surely holds this launch"
    )


def _on(setup: Setup, machine: Machine) -> Setup:
    return replace(setup, machine=machine, measured={}, logged_args=None)
