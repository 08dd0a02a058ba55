"""Requests of exact lengths toward max_model_len, and the first one beyond it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from kvroom.errors import short
from kvroom.server.check import Check, Held, failed
from kvroom.server.client import Client
from kvroom.server.generate import Ask
from kvroom.server.lengths import Prompts
from kvroom.server.meter import Meter, watched
from kvroom.server.outcome import Failure, Outcome

_ANSWER = 8
"""Tokens of each answer, fewer where the context is short."""
_WORDS = ("maximum context length", "max_model_len", "maximum model length", "context length", "too long")


@dataclass(frozen=True, slots=True)
class Tried:
    """One request near the boundary."""

    prompt: int
    output: int
    outcome: Outcome

    @property
    def total(self) -> int:
        """Tokens asked for, in and out."""
        return self.prompt + self.output


@dataclass(frozen=True, slots=True)
class Boundary:
    """What was tried, and the checks it makes."""

    tried: tuple[Tried, ...]
    checks: tuple[Check, ...]

    @property
    def stuck(self) -> bool:
        """Whether a request that is allowed was never scheduled."""
        return any(tried.outcome.failure is Failure.STUCK for tried in self.tried)


class Prober:
    """Sends requests of exact lengths; prompts share their beginning, so that the long ones cost one reading."""

    def __init__(self, client: Client, meter: Meter, ask: Ask, prompts: Prompts, seconds: float) -> None:
        self._client, self._meter, self._seconds = client, meter, seconds
        self._ask = replace(ask, chat=False)
        self._prompts = prompts
        self._ids: tuple[int, ...] = ()
        self.tried: list[Tried] = []

    async def send(self, prompt: int, output: int) -> Tried:
        """A request of ``prompt`` tokens in and ``output`` out."""
        if self._prompts.exact and len(self._ids) < prompt:
            more = self._prompts.make(prompt - len(self._ids))
            assert not isinstance(more, str)
            self._ids += more
        text = self._ids[:prompt] if self._prompts.exact else self._prompts.make(prompt)
        ask = replace(self._ask, prompt=text, output=output)
        outcome = await watched(self._client, self._meter, ask, self._seconds)
        self.tried.append(Tried(prompt, output, outcome))
        return self.tried[-1]


async def boundary(
    client: Client,
    meter: Meter,
    ask: Ask,
    prompts: Prompts,
    max_model_len: int,
    seconds: float,
    say: Callable[[str], None],
) -> Boundary:
    """Try half of ``max_model_len`` tokens, one less than all, all, and one more; stop at what does not hold."""
    prober = Prober(client, meter, ask, prompts, seconds)
    checks: list[Check] = []
    for total in sorted({max(part, 2) for part in (max_model_len // 2, max_model_len - 1, max_model_len)}):
        output = max(min(_ANSWER, total // 2), 1)
        say(f"{total:,} tokens of {max_model_len:,}")
        check = _fits(await prober.send(total - output, output), prompts, extras=ask.extras)
        checks.append(check)
        if check.held is Held.FAILS:
            break
    else:
        say(f"{max_model_len + 1:,} tokens, which must be refused")
        checks += await _beyond(prober, max_model_len, max(min(_ANSWER, max_model_len // 2), 2))
    return Boundary(tuple(prober.tried), tuple(checks))


def _fits(tried: Tried, prompts: Prompts, *, extras: bool) -> Check:
    name, outcome = f"{tried.total:,} tokens", tried.outcome
    if outcome.failure is Failure.STUCK:
        why = (
            "The request is within max_model_len, and the KV cache has fewer usable blocks than it needs: one block is "
            "never handed out. It waits for ever, and so does every request behind it."
        )
        return failed(name, outcome, why)
    if not outcome.ok:
        why = "It is within max_model_len." if outcome.failure is Failure.REFUSED else ""
        return failed(name, outcome, why)
    took = f"{outcome.latency:.2f} s" if outcome.latency is not None else "?"
    seen = f"{outcome.prompt_tokens:,} in, {outcome.output_tokens:,} out, {took}"
    right = outcome.prompt_tokens in {0, tried.prompt} and outcome.output_tokens == tried.output
    if right:
        return Check(name, Held.HOLDS, seen)
    if not prompts.exact or not extras:
        return Check(
            name, Held.HOLDS, seen, "This server takes no exact lengths (token ids, ignore_eos): nearly so long."
        )
    return Check(name, Held.FAILS, seen, f"asked for were {tried.prompt:,} in and {tried.output:,} out")


async def _beyond(prober: Prober, max_model_len: int, output: int) -> list[Check]:
    """One token too many in all, and a prompt that is too long by itself."""
    checks = []
    tried = await prober.send(max_model_len + 1 - output, output)
    name, outcome = f"{tried.total:,} tokens", tried.outcome
    if outcome.ok and outcome.prompt_tokens + outcome.output_tokens <= max_model_len:
        seen = f"answered with {outcome.output_tokens:,} tokens instead of {output:,}"
        why = (
            "Newer releases cut max_tokens on /v1/completions down to what is left instead of refusing: a client "
            'learns it only from finish_reason "length".'
        )
        checks.append(Check(name, Held.HOLDS, seen, why))
    else:
        checks.append(_refusal(name, outcome, max_model_len))
    tried = await prober.send(max_model_len + 1, 1)
    checks.append(_refusal(f"a prompt of {max_model_len + 1:,}", tried.outcome, max_model_len))
    return checks


def _refusal(name: str, outcome: Outcome, max_model_len: int) -> Check:
    if outcome.ok:
        seen = f"answered: {outcome.prompt_tokens:,} in, {outcome.output_tokens:,} out"
        return Check(name, Held.FAILS, seen, f"It is beyond max_model_len {max_model_len:,} and should be refused.")
    if outcome.status != 400:
        return failed(name, outcome, "It should be refused with a 400.")
    said = short(" ".join(outcome.message.split()), 300)
    if any(word in said for word in _WORDS):
        return Check(name, Held.HOLDS, f"400: {said}")
    return Check(name, Held.FAILS, f"400: {said}", "The message does not say that the request is too long.")
