"""What the findings about a log look at: the reading, and what the rules predict for the same launch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kvroom.findings.finding import Evidence
from kvroom.redaction import clean

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

    def since(self, version: str) -> bool | None:
        """Whether the release is ``version`` or later; None where it is unknown."""
        from kvroom.vllm.releases import parse_release

        return None if self.release is None else self.release >= parse_release(version)


def shown(fact: Fact) -> Evidence:
    """``fact`` as evidence: its line, and its text without secrets and not too long."""
    text = clean(fact.text)
    return Evidence(text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "...", fact.line)
