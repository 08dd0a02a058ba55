"""What has to be served: contexts, requests at once, and targets of latency."""

from __future__ import annotations

import math
from dataclasses import dataclass

from kvroom.errors import UsageError
from kvroom.sizing import quantities


@dataclass(frozen=True, slots=True)
class Need:
    """What hardware is sized for."""

    context: int
    """max_model_len: the longest request, prompt and answer, in tokens."""
    held: int
    """Tokens that one of the requests at once holds at its end; at most ``context``."""
    concurrency: int
    """Requests that must be held at once."""
    input_len: int | None = None
    output_len: int | None = None
    rate: float | None = None
    """Requests a second."""
    ttft: float | None = None
    """Longest time to first token, seconds."""
    tpot: float | None = None
    """Longest time per output token, seconds."""
    why: str = ""
    """Where the concurrency is from."""

    @property
    def timed(self) -> bool:
        """Whether it asks for speed as well."""
        return self.ttft is not None or self.tpot is not None or self.rate is not None

    @property
    def prompt(self) -> int:
        """Tokens of a prompt: as given, else nearly all that is held."""
        return self.input_len if self.input_len is not None else max(1, self.held - self.answer)

    @property
    def answer(self) -> int:
        """Tokens of an answer: as given, else 256 or a quarter of what is held."""
        return self.output_len if self.output_len is not None else max(1, min(256, self.held // 4))


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """The need as it was written; everything is optional."""

    context: str | None = None
    concurrency: int | None = None
    users: int | None = None
    input_len: str | None = None
    output_len: str | None = None
    rate: str | None = None
    ttft: str | None = None
    tpot: str | None = None


def need_of(asked: Asked, limit: int, model: str) -> Need:
    """The need that ``asked`` writes for a model of at most ``limit`` tokens.

    Raises UsageError where it contradicts itself or cannot be met by any hardware.
    """
    prompt = quantities.tokens(asked.input_len, "--input-len") if asked.input_len else None
    answer = quantities.tokens(asked.output_len, "--output-len") if asked.output_len else None
    ttft = quantities.seconds(asked.ttft, "--ttft") if asked.ttft else None
    tpot = quantities.seconds(asked.tpot, "--tpot") if asked.tpot else None
    rate = quantities.per_second(asked.rate, "--rate") if asked.rate else None
    _check_counts(asked, rate)
    if (prompt is None) != (answer is None):
        raise UsageError("--input-len and --output-len belong together.", "Give both, or --context alone.")
    both = prompt + answer if prompt is not None and answer is not None else None
    context = quantities.tokens(asked.context, "--context") if asked.context else both
    if context is None:
        raise UsageError("The size of a request is missing.", "Give --context, or --input-len and --output-len.")
    if both is not None and both > context:
        raise UsageError(
            f"--context {context:,} is shorter than --input-len and --output-len together ({both:,}).",
            "Raise --context, or leave it out.",
        )
    if context > limit:
        raise UsageError(
            f"A request of {context:,} tokens is {context - limit:,} longer than {model} takes ({limit:,}).",
            "Choose a model with a longer context, or --hf-overrides with the rotary scaling that it supports.",
        )
    count, why = _concurrency(asked, rate, ttft, tpot, answer)
    return Need(context, both or context, count, prompt, answer, rate, ttft, tpot, why)


def _check_counts(asked: Asked, rate: float | None) -> None:
    for name in ("concurrency", "users"):
        value = getattr(asked, name)
        if value is not None and not 1 <= value <= 1_000_000:
            raise UsageError(f"--{name} {value}: from 1 to 1,000,000.")
    if asked.concurrency is not None and (asked.users is not None or rate is not None):
        other = "--users" if asked.users is not None else "--rate"
        raise UsageError(f"--concurrency and {other} both say how many requests run at once.", "Give one of the two.")


def _concurrency(
    asked: Asked, rate: float | None, ttft: float | None, tpot: float | None, answer: int | None
) -> tuple[int, str]:
    """Requests at once and where that is from.

    With a rate, Little's law at the latency allowed, and two standard deviations for chance; never more than the
    users, each of whom waits for an answer before asking again.
    """
    if asked.concurrency is not None:
        return asked.concurrency, "as given"
    if rate is None:
        if asked.users is None:
            return 1, "one request at a time, since neither --concurrency nor --users is given"
        return asked.users, f"each of {asked.users:,} users has one request running"
    if tpot is None or answer is None:
        if asked.users is not None:
            return asked.users, f"each of {asked.users:,} users may have a request running"
        raise UsageError(
            "--rate alone does not say how many requests run at once.",
            "Give --output-len and --tpot as well (or --users): a request lasts TTFT + output x TPOT.",
        )
    lasts = (ttft or 0.0) + answer * tpot
    mean = rate * lasts
    count = max(1, math.ceil(mean + 2 * math.sqrt(mean)))
    why = f"{rate:g} requests/s x {lasts:.3g} s each is {mean:.1f} on average; {count:,} with chance"
    if asked.users is not None and asked.users < count:
        if asked.users < mean * 0.999:
            raise UsageError(
                f"{asked.users:,} users with one request each cannot ask {rate:g} times a second when an answer may "
                f"take {lasts:.3g} s: that is {asked.users / lasts:.3g} a second.",
                "Lower --rate, tighten --ttft and --tpot, or raise --users.",
            )
        return asked.users, f"{why}; no more than the {asked.users:,} users"
    return count, why
