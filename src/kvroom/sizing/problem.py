"""What a search is over: one model, its variants, the need, and the limits of the hardware."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from kvroom.devices.catalogue import find_device, parts
from kvroom.devices.device import Device
from kvroom.errors import DeviceError, UsageError
from kvroom.files import read_limited
from kvroom.ledger.setup import Setup
from kvroom.models.schemes import named_scheme
from kvroom.models.shape import ModelShape
from kvroom.plans.make import plan_tokens
from kvroom.plans.model import find_model
from kvroom.plans.request import Request
from kvroom.sizing.layouts import Layout
from kvroom.sizing.need import Need
from kvroom.vllm.args import EngineArgs
from kvroom.vllm.config_file import LONGEST
from kvroom.vllm.parse import parse_serve_args

CHOSEN = {
    "tensor_parallel_size": "-tp",
    "pipeline_parallel_size": "-pp",
    "data_parallel_size": "-dp",
    "enable_expert_parallel": "--enable-expert-parallel",
    "max_model_len": "--max-model-len (say --context)",
    "kv_cache_memory_bytes": "--kv-cache-memory-bytes",
    "num_gpu_blocks_override": "--num-gpu-blocks-override",
}
"""Arguments that the search itself chooses."""
NATIVE = "as it is"


@dataclass(frozen=True, slots=True)
class Level:
    """One way to store weights and KV cache; what comes later gives up more."""

    rank: int
    weights: str
    """``as it is``, ``fp8`` (done by vLLM while loading), or the name of another checkpoint's scheme."""
    kv: str
    """``auto`` or ``fp8``."""
    shape: ModelShape = field(repr=False)
    flags: tuple[str, ...] = ()

    @property
    def other_checkpoint(self) -> bool:
        """Whether another checkpoint than the one named is needed."""
        return self.weights not in {NATIVE, "fp8"}


@dataclass(frozen=True)
class Problem:
    """A model, what it has to serve, and how it may be spread; of the same words the same in every process."""

    words: tuple[str, ...]
    """What follows ``vllm serve``: the model and flags that hold for every candidate."""
    need: Need
    env: Mapping[str, str] = field(default_factory=dict)
    request: Request = field(default_factory=Request)
    variants: tuple[str, ...] = (NATIVE, "fp8", "w4a16")
    kv_dtypes: tuple[str, ...] = ("auto", "fp8")
    per_node: int = 8
    most: int = 32
    """GPUs at most."""
    _args: dict[tuple[str, ...], EngineArgs] = field(default_factory=dict, repr=False, compare=False)

    @cached_property
    def base(self) -> Setup:
        """The launch without anything that the search chooses, on a card that stands for all."""
        return base_setup(self.words, self.env, self.request)

    @cached_property
    def levels(self) -> tuple[Level, ...]:
        """Ways to store weights and cache, from the checkpoint as it is to what gives up most."""
        base = self.base
        found: list[Level] = []
        free = base.shape.quantization is None and not base.args.quantization
        kinds = self.variants if free else (NATIVE,)
        caches = self.kv_dtypes if base.args.kv_cache_dtype is None and base.shape.caches else ("auto",)
        for weights in kinds:
            shape = base.shape
            flags: tuple[str, ...] = ()
            if weights == "fp8":
                flags = ("--quantization", "fp8")
            elif weights != NATIVE:
                shape = stored_as(base, weights, self.request)
            for kv in caches:
                words = flags if kv == "auto" else (*flags, "--kv-cache-dtype", kv)
                found.append(Level(len(found), weights, kv, shape, words))
        return tuple(found)

    def tokens(self, level: Level, layout: Layout) -> tuple[str, ...]:
        """The words after ``vllm serve`` of one candidate."""
        seqs = () if "max_num_seqs" in self.base.args.given else ("--max-num-seqs", str(self.each(layout)))
        return (*self.words, "--max-model-len", str(self.need.context), *seqs, *level.flags, *layout.flags())

    def each(self, layout: Layout) -> int:
        """Requests at once that one data-parallel replica has to hold."""
        return -(-self.need.concurrency // layout.dp)

    def args(self, level: Level, layout: Layout) -> EngineArgs:
        """The same as vLLM reads it, remembered."""
        words = self.tokens(level, layout)
        found = self._args.get(words)
        if found is None:
            found = self._args[words] = parse_serve_args(
                words, self.env, release=self.base.release, read_file=_read_text
            )
        return found


def base_setup(words: tuple[str, ...], env: Mapping[str, str], request: Request) -> Setup:
    """The setup that ``words`` ask for; UsageError where they fix what a search chooses."""
    setup = plan_tokens(words, env, replace(request, gpu="H100-SXM", learned=False)).prediction.setup
    for name, flag in CHOSEN.items():
        if name in setup.args.given:
            raise UsageError(f"{flag} is chosen by the search.", "Leave it out; `kvroom plan` takes it.")
    if setup.args.unknown:
        raise UsageError(
            f"vLLM {setup.release} has no {' '.join(setup.args.unknown)[:100]}.", "Leave it out, or choose --vllm."
        )
    return setup


def stored_as(base: Setup, weights: str, request: Request) -> ModelShape:
    """The base's model as a checkpoint of the scheme ``weights``; UsageError for a name that is none."""
    named_scheme(weights)
    args = base.args
    shape, _ = find_model(
        args.model, offline=request.offline, revision=args.revision, overrides=args.hf_overrides, assumed=weights
    )
    return shape


def usual_devices() -> tuple[Device, ...]:
    """Cards to buy or rent: those that vLLM runs on, with 12 GB or more of their own, no laptops; a name once.

    Where two parts of one name differ in memory both are there.
    """
    found: dict[tuple[str, int], Device] = {}
    for part in parts():
        device = part.device
        old = device.vendor == "NVIDIA" and (device.compute_capability or (0, 0)) < (7, 5)
        laptop = "laptop" in part.all_words or "laptop" in device.name.lower()
        known = device.vendor in {"NVIDIA", "AMD"} and not device.unified and not old and not laptop
        if known and part.nominal_gb >= 12:
            found.setdefault((device.name, device.total_bytes), device)
    return tuple(sorted(found.values(), key=lambda device: (device.total_bytes, device.name)))


def asked_as(device: Device) -> str:
    """The shortest name that the catalogue finds ``device`` by, for people and for commands."""
    for part in parts():
        if part.device.id == device.id:
            size = f"{part.nominal_gb:g}GB"
            names = (*part.also, device.id, f"{device.id} {size}")
            break
    else:
        return device.name
    return next((name for name in names if _means(name, device)), device.name)


def _means(name: str, device: Device) -> bool:
    try:
        return find_device(name).id == device.id
    except DeviceError:
        return False


def _read_text(path: str) -> str:
    return read_limited(Path(path).expanduser(), LONGEST).decode("utf-8-sig")
