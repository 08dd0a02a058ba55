"""Remedies that change the machine or the checkpoint: parallelism, a bigger card, quantised weights."""

from __future__ import annotations

from dataclasses import replace

from kvroom.devices.catalogue import larger_devices
from kvroom.devices.device import Machine
from kvroom.ledger.predict import Prediction, Setup, predict
from kvroom.ledger.verdict import Status
from kvroom.models.quantization import assume_quantization
from kvroom.remedies.flags import Candidates
from kvroom.remedies.remedy import Impossible, Remedy
from kvroom.units import show_bytes


def more_gpus(before: Prediction) -> Candidates:
    """Tensor parallelism over twice as many GPUs, or more, that divides the attention heads."""
    setup = before.setup
    size = setup.args.tensor_parallel_size * 2
    while size <= 16:
        if setup.shape.heads % size == 0:
            machine = replace(setup.machine, count=max(setup.machine.count, size))
            after = predict(replace(setup.with_args(tensor_parallel_size=size), machine=machine))
            if after.verdict.status is Status.FITS:
                yield Remedy(
                    ("--tensor-parallel-size", str(size)),
                    (("tensor_parallel_size", size),),
                    f"{size} GPUs share the weights and the KV heads",
                    f"needs {size} such GPUs",
                    after,
                )
                return
        size *= 2


def quantised_weights(before: Prediction) -> Candidates:
    """A 4-bit checkpoint of the same model, where this one is not quantised."""
    setup, ledger = before.setup, before.ledger
    if setup.shape.quantization is not None or setup.args.quantization or ledger is None:
        return
    shape = replace(setup.shape, quantization=assume_quantization("awq"))
    after = predict(replace(setup, shape=shape))
    if after.ledger is None:
        return
    saved = ledger.weights.expected - after.ledger.weights.expected
    if saved > 0:
        yield Remedy(
            (),
            (),
            f"a 4-bit checkpoint (AWQ, GPTQ or w4a16) of this model frees {show_bytes(saved)} a GPU",
            "another checkpoint, and some quality",
            after,
            "a 4-bit checkpoint",
        )


def bigger_card(before: Prediction) -> Candidates:
    """The smallest card of the catalogue on which the same launch fits."""
    setup = before.setup
    for device in larger_devices(setup.machine.device):
        after = predict(_on(setup, Machine(device, setup.machine.count)))
        if after.verdict.status is Status.FITS:
            yield Remedy(
                (),
                (),
                f"the same launch fits on {device.name}",
                "another card",
                after,
                f"another card: {device.name}",
            )
            return
    yield Impossible("a bigger card", "no single card in the catalogue holds this launch as it is")


def _on(setup: Setup, machine: Machine) -> Setup:
    return replace(setup, machine=machine, measured={})
