"""What the findings about a log look at: the reading, and what the rules predict for the same launch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kvroom.findings.finding import Evidence
from kvroom.findings.values import number_of
from kvroom.redaction import clean
from kvroom.vllm.releases import parse_release

if TYPE_CHECKING:
    from kvroom.ledger.predict import Prediction
    from kvroom.logs.facts import Fact
    from kvroom.logs.reading import Reading
    from kvroom.vllm.releases import Release

_LONGEST = 400


@dataclass(frozen=True, slots=True)
class Case:
    """One start and its context."""

    reading: Reading
    release: Release | None = None
    """The release of the log, as printed or as said; None where nobody knows."""
    prediction: Prediction | None = None
    """What the rules say of the same launch; None where the model or the card is unknown."""

    def setting(self, name: str, default: Any = None) -> Any:
        """The value of vLLM's argument ``name``: as the log shows it, else as the rules resolve it."""
        value = self.reading.settings.get(name)
        if value is None and self.prediction is not None and self.prediction.settings is not None:
            value = getattr(self.prediction.settings, name, None)
        return default if value is None else value

    def asked(self, name: str) -> Any:
        """What the user gave for vLLM's argument ``name``, by the log or by the command; None where nothing."""
        value = self.reading.given.get(name)
        if value is None and self.prediction is not None:
            value = getattr(self.prediction.setup.args, name, None)
        return value

    def whole(self, name: str) -> int | None:
        """The argument ``name`` as a whole number; None where it is unknown or ``auto``."""
        number = number_of(self.setting(name))
        if number is None:
            number = number_of(self.asked(name))
        return int(number) if number is not None and number > 0 else None

    def variable(self, name: str) -> str | None:
        """The environment variable ``name`` of the launch, None where it is not known to be set."""
        return self.prediction.setup.args.env.get(name) if self.prediction is not None else None

    @property
    def total_bytes(self) -> int | None:
        """The total memory of one GPU, as logged or as known of the card."""
        if self.reading.total_bytes:
            return self.reading.total_bytes
        return self.prediction.setup.machine.device.total_bytes if self.prediction is not None else None

    @property
    def device_name(self) -> str:
        """The name of the card, empty where it is unknown."""
        if self.reading.device:
            return self.reading.device
        return self.prediction.setup.machine.device.name if self.prediction is not None else ""

    def since(self, version: str) -> bool | None:
        """Whether the release is ``version`` or later; None where it is unknown."""
        return None if self.release is None else self.release >= parse_release(version)

    def between(self, first: str, beyond: str) -> bool:
        """Whether the release is known, ``first`` or later, and before ``beyond``."""
        return self.release is not None and parse_release(first) <= self.release < parse_release(beyond)


def shown(fact: Fact) -> Evidence:
    """``fact`` as evidence: its line, and its text without secrets and not too long."""
    text = clean(fact.text)
    return Evidence(text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "...", fact.line)
