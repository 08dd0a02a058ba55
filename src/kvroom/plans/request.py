"""What a person asks for beside vLLM's own flags, checked before anything is looked up."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from kvroom.devices.names import parse_memory
from kvroom.errors import UsageError
from kvroom.units import GIB
from kvroom.vllm.backends.question import PACKAGES

ENTRIES = ("total", "weights", "activation", "other", "cuda_graphs", "available")
"""What a log can have measured."""
_TEXTS = ("gpu", "gpu_memory", "free_memory", "vllm", "assume_quantization", "measured_with")


@dataclass(frozen=True, slots=True)
class Request:
    """What was asked for beside vLLM's own flags; UsageError for what is of no use as such."""

    gpu: str | None = None
    gpu_memory: str | None = None
    free_memory: str | None = None
    vllm: str | None = None
    assume_quantization: str | None = None
    measured: Mapping[str, int] | None = None
    """Ledger entries (and ``total``, the card's) that a log printed, in bytes."""
    measured_with: str | None = None
    """Flags under which ``available`` was logged, where they differ from the launch's."""
    offline: bool = False
    without: Collection[str] = ()
    """Packages that the build of vLLM lacks, of ``PACKAGES``."""
    learned: bool = False
    """Whether what logs of such a machine taught is used, where nothing is given as measured."""

    @property
    def card_bytes(self) -> int | None:
        """``gpu_memory`` in bytes, None where it was not given; UsageError for less than 1 GiB."""
        return parse_memory(self.gpu_memory, least=GIB) if self.gpu_memory else None

    def __post_init__(self) -> None:
        """Check the types, which a caller from Python may have wrong, and that nothing is empty."""
        for name in _TEXTS:
            value = getattr(self, name)
            if value is None:
                continue
            if not isinstance(value, str):
                raise UsageError(
                    f"{name} is {_named(value)}, not a text.", f"Write it as on the command line: {name}='...'."
                )
            if not value.strip() and name != "measured_with":
                raise UsageError(f"--{name.replace('_', '-')} is empty.", "Give it a value or leave it out.")
        if self.measured is not None:
            _check_measured(self.measured)
        if isinstance(self.without, str) or not isinstance(self.without, Collection):
            raise UsageError(
                f"without is {_named(self.without)}, not a list.", "Write it as in without=['flashinfer']."
            )
        for package in self.without:
            if package not in PACKAGES:
                raise UsageError(f"--without {package}: nothing here depends on it.", f"Known: {', '.join(PACKAGES)}.")


def checked_env(env: object) -> Mapping[str, str]:
    """``env`` as environment variables, none for None; UsageError where it is no mapping of texts."""
    if env is None:
        return {}
    if not isinstance(env, Mapping):
        raise UsageError(f"env is {_named(env)}, not a mapping.", "Write it as in {'VLLM_USE_V1': '1'}.")
    for name, value in env.items():
        if not isinstance(name, str) or not isinstance(value, str):
            raise UsageError(f"The environment variable {name} is {_named(value)}.", "Give names and values as texts.")
    return env


def _check_measured(measured: object) -> None:
    if not isinstance(measured, Mapping):
        raise UsageError(
            f"measured is {_named(measured)}, not a mapping.", "Write it as in {'activation': 1524713390}."
        )
    for name, size in measured.items():
        if name not in ENTRIES:
            raise UsageError(f"'{name}' is no entry that a log can measure.", f"Known: {', '.join(ENTRIES)}.")
        if type(size) is not int or (size < (name == "total") and name != "available"):
            raise UsageError(f"The measured {name} is {_named(size)}.", "Give its bytes, as a whole number.")


def _named(value: object) -> str:
    """``value`` as an error shows it."""
    return f"{value!r:.60}" if isinstance(value, int | float | str | None) else f"a {type(value).__name__}"
