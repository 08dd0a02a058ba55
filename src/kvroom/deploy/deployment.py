"""What every form of a deployment is made of: the image, explicit flags, GPUs, shared memory, time to start."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from kvroom.devices.catalogue import find_device
from kvroom.devices.device import Device
from kvroom.errors import DeviceError, UsageError
from kvroom.findings.deployments.place import SLOW_BYTES_A_SECOND, SLOW_INIT_SECONDS, startup_seconds
from kvroom.ledger.predict import Prediction
from kvroom.ledger.verdict import Status
from kvroom.plans.plan import Plan
from kvroom.redaction import clean, is_secret_name
from kvroom.units import GIB, show_bytes
from kvroom.vllm.flags import flags_for
from kvroom.vllm.items import Item, read_items
from kvroom.vllm.releases import Release
from kvroom.vllm.render import render_command
from kvroom.vllm.rules import rules_for

PORT = 8000
CACHE = "/huggingface"
"""Where the hub's files are kept in the container, whoever its user is: HF_HOME says so."""
SECRET = "hf-token"  # noqa: S105
_EXPLICIT = ("max_model_len", "gpu_memory_utilization", "max_num_seqs", "max_num_batched_tokens")
"""Settings that are written out, so that another release's default does not change the pool."""
_SECRETS = {"api_key": "VLLM_API_KEY", "hf_token": "HF_TOKEN"}
"""Arguments that hold a secret, and the variable that vLLM reads instead."""
_MOST_GPUS = 16
"""GPUs of the largest single hosts."""
_SHARED_A_GPU = 2 * GIB
"""Shared memory for each GPU: vLLM's own Kubernetes example has 2 GiB for one (docs/deployment/k8s.md)."""
_PLACE = re.compile(r"(?:/|\./|~|[A-Za-z]:\\)")


@dataclass(frozen=True, slots=True)
class Deployment:
    """One launch, ready to be written down."""

    name: str
    """A name that DNS, docker and Kubernetes take."""
    release: Release
    """The release whose rules were used."""
    image: str
    program: tuple[str, ...]
    """What starts the server in the image."""
    words: tuple[str, ...]
    """The model and the flags."""
    gpus: int
    device: Device
    env: Mapping[str, str]
    secrets: tuple[str, ...]
    """Variables that are taken from a secret, by name."""
    shared_bytes: int
    startup_seconds: int
    """How long a slow start takes, in whole tens of seconds."""
    weights_bytes: int
    """Of all GPUs together, for the cache's size."""
    port: int
    folder: str | None
    """The folder of a model that is no hub id, to be mounted where it is."""
    comments: tuple[str, ...]
    """What to know, a line each."""

    @property
    def label(self) -> str | None:
        """The value of ``nvidia.com/gpu.product`` on nodes with the card, None where it is not surely that."""
        if self.device.vendor != "NVIDIA":
            return None
        text = re.sub(r"[^A-Za-z0-9_.-]", "", self.device.name.replace(" ", "-"))[:63]
        try:
            return text if find_device(text).id == self.device.id and self.device.id else None
        except DeviceError:
            return None

    @property
    def amd(self) -> bool:
        """Whether the card is AMD's."""
        return self.device.vendor == "AMD"


def deployment_of(plan: Plan, *, alone: bool = False) -> Deployment:
    """The deployment of ``plan`` with its remedies; ``alone`` for a command without a container around it.

    Raises UsageError where the launch does not start with any flag, where one host does not hold it, and where
    no image is known.
    """
    after = plan.advice.after or plan.prediction
    if after.verdict.status not in (Status.FITS, Status.TIGHT) or after.ledger is None or after.settings is None:
        raise UsageError(
            "The launch does not start, and no flag makes it start: there is nothing to write.",
            "kvroom plan shows what is missing: another card, more of them, or a smaller checkpoint.",
        )
    args = after.setup.args
    gpus = args.tensor_parallel_size * args.pipeline_parallel_size
    gpus *= args.data_parallel_size * args.prefill_context_parallel_size
    if gpus > _MOST_GPUS and not alone:
        raise UsageError(
            f"The launch spans {gpus} GPUs, more than one host has.",
            "Write the command (--emit command) and start it on each node of a LeaderWorkerSet or Ray cluster.",
        )
    words, secrets = _explicit_words(plan, after)
    env = {name: value for name, value in sorted(args.env.items()) if not is_secret_name(name)}
    secrets = tuple(dict.fromkeys([*secrets, *(name for name in sorted(args.env) if is_secret_name(name))]))
    weights = after.ledger.weights.expected
    seconds = -(-startup_seconds(weights, SLOW_BYTES_A_SECOND, SLOW_INIT_SECONDS) // 10) * 10
    folder = args.model if _PLACE.match(args.model) else None
    if not folder and not alone:
        env["HF_HOME"] = CACHE
    return Deployment(
        name=_dns_name(args.served_model_name or args.model),
        release=after.rules.release,
        image="" if alone else _image(after),
        program=tuple(after.rules["serve_command"]),
        words=words,
        gpus=gpus,
        device=after.setup.machine.device,
        env=env,
        secrets=secrets if folder or "HF_TOKEN" in secrets else ("HF_TOKEN", *secrets),
        shared_bytes=_SHARED_A_GPU * gpus,
        startup_seconds=seconds,
        weights_bytes=weights * gpus,
        port=_port(words, after),
        folder=folder,
        comments=_comments(plan, after, gpus, seconds),
    )


def _explicit_words(plan: Plan, after: Prediction) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The words behind ``vllm serve`` with the resolved settings written out and without secrets."""
    release = after.setup.release
    settings = after.settings
    assert settings is not None
    given = after.setup.args
    tokens = list(plan.command[2:])
    secrets: list[str] = []
    kept: list[str] = []
    for item in _items(tokens, after):
        variable = _SECRETS.get(item.flag.name if item.flag else "")
        if variable:
            secrets.append(variable)
        else:
            kept += tokens[item.start : item.end]
    table = flags_for(release).by_name
    missing = {
        name: getattr(settings, name)
        for name in _EXPLICIT
        if getattr(given, name) is None and name in table and getattr(settings, name)
    }
    if given.kv_cache_memory_bytes is not None:
        missing.pop("gpu_memory_utilization", None)
    words = render_command(kept, release=release, set_flags=missing)
    return _model_first(words, after), tuple(secrets)


def _model_first(words: list[str], after: Prediction) -> tuple[str, ...]:
    """``words`` with the model as the first one, whether it was given there or as ``--model``."""
    model = after.setup.args.model
    rest: list[str] = []
    for item in _items(words, after):
        is_model = item.kind == "positional" or (item.flag is not None and item.flag.name == "model")
        if not is_model:
            rest += words[item.start : item.end]
    return (model, *rest)


def _items(words: list[str], after: Prediction) -> list[Item]:
    release = after.setup.release
    return read_items(words, flags_for(release), rules_for(release))


def _image(after: Prediction) -> str:
    """The image of the release whose rules were used."""
    vendor = after.setup.machine.device.vendor
    name = {"NVIDIA": "image_nvidia", "AMD": "image_amd"}.get(vendor)
    image = after.rules[name] if name else None
    if image is None:
        raise UsageError(
            f"No image of vLLM {after.rules.release} for cards of {vendor} is known here.",
            "--emit command writes the command for an image of your own.",
        )
    return f"{image}:v{after.rules.release}"


def _port(words: tuple[str, ...], after: Prediction) -> int:
    for item in _items(list(words), after):
        if item.flag is not None and item.flag.name == "port" and item.values and item.values[0].isdigit():
            return int(item.values[0])
    return PORT


def _dns_name(text: str) -> str:
    """``text`` as a name of a service: lower case, digits, dashes.

    >>> _dns_name("meta-llama/Llama-3.1-8B-Instruct")
    'llama-3-1-8b-instruct'
    """
    name = re.sub(r"[^a-z0-9]+", "-", text.rstrip("/").rsplit("/", 1)[-1].lower()).strip("-")[:40].strip("-")
    return name if name and name[0].isalpha() else f"vllm-{name}".strip("-")


def _comments(plan: Plan, after: Prediction, gpus: int, seconds: int) -> tuple[str, ...]:
    """The verdict, what was changed to reach it, and what the time to start is made of."""
    pool = after.pool
    weights = after.ledger.weights.expected if after.ledger else 0
    room = f": {pool.tokens:,} tokens of KV cache, {pool.max_concurrency:.2f} x {pool.max_model_len:,}" if pool else ""
    machine = after.setup.machine
    cards = f"{gpus} x {machine.device.name}"
    said = [f"kvroom: {after.verdict.status} on {cards}, vLLM {after.rules.release}{room}."]
    if plan.advice.after is not None and plan.advice.combined:
        changed = ", ".join("--" + name.replace("_", "-") for name, _ in plan.advice.combined if name != "unknown")
        said.append(f"As it was given it does not fit: changed {changed}.")
    said.append(
        f"Time to start: {show_bytes(weights)} of weights a GPU at {SLOW_BYTES_A_SECOND / GIB:.2f} GiB/s and"
        f" {SLOW_INIT_SECONDS} s for the rest, {seconds} s; a first download may take longer."
    )
    if machine.free_bytes is not None or machine.device.basis == "measured":
        said.append("The plan has its own sizes of memory (--gpu-memory, --free-memory): give them to check as well.")
    return tuple(clean(each) for each in said)
