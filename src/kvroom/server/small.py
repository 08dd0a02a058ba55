"""Small requests: completions and chat, whole and streamed, and in which form this server takes them."""

from __future__ import annotations

from dataclasses import dataclass, replace

from kvroom.server.check import Check, Held, failed
from kvroom.server.client import Client
from kvroom.server.generate import Ask, generate_whole
from kvroom.server.lengths import Prompts
from kvroom.server.meter import Meter, watched
from kvroom.server.outcome import Failure, Outcome

_INPUT, _OUTPUT = 16, 4
_FIELDS = ("ignore_eos", "repetition_penalty", "extra", "unrecognized", "Unrecognized")
_NOT_UNDERSTOOD = {400, 422}


@dataclass(frozen=True, slots=True)
class Way:
    """How this server is asked, and what the small requests came to."""

    ask: Ask
    prompts: Prompts
    checks: tuple[Check, ...]
    completions: bool
    """Whether ``/v1/completions`` is there; only it takes prompts of exact lengths."""


async def small_requests(client: Client, meter: Meter, ask: Ask, prompts: Prompts, seconds: float) -> Way:
    """Ask for a few tokens in each way.

    A server that knows none of vLLM's own fields is asked without them, and one that takes no token ids with text.
    The endpoint that ``ask`` does not name may be missing.
    """
    small = replace(ask, output=_OUTPUT, prompt=prompts.make(_INPUT), chat=False)
    small, whole = await _understood(client, small, seconds)
    if whole.status in _NOT_UNDERSTOOD and prompts.exact:
        texts = prompts.with_text()
        asked = replace(small, prompt=texts.make(_INPUT), extras=ask.extras)
        asked, again = await _understood(client, asked, seconds)
        if again.ok:
            small, whole, prompts = asked, again, texts
    checks = [await _check("completions", client, meter, small, whole, seconds, needed=not ask.chat)]
    chat = replace(small, prompt=prompts.text(_INPUT), chat=True)
    chat, said = await _understood(client, chat, seconds)
    checks.append(await _check("chat", client, meter, chat, said, seconds, needed=ask.chat))
    extras = chat.extras if ask.chat else small.extras
    return Way(replace(ask, extras=extras), prompts, tuple(checks), whole.ok)


async def _understood(client: Client, ask: Ask, seconds: float) -> tuple[Ask, Outcome]:
    """A whole answer, and the request as it was understood."""
    whole = await generate_whole(client, replace(ask, stream=False), seconds)
    if whole.status in _NOT_UNDERSTOOD and ask.extras and any(word in whole.message for word in _FIELDS):
        ask = replace(ask, extras=False)
        whole = await generate_whole(client, replace(ask, stream=False), seconds)
    return ask, whole


async def _check(
    name: str, client: Client, meter: Meter, ask: Ask, whole: Outcome, seconds: float, *, needed: bool
) -> Check:
    if not whole.ok:
        check = failed(name, whole)
        if needed or whole.failure is not Failure.REFUSED:
            return check
        why = "Without a chat template there is no chat; completions work." if "template" in whole.message else ""
        return replace(check, held=Held.UNKNOWN, why=why, cure="")
    streamed = await watched(client, meter, ask, seconds)
    if not streamed.ok:
        return failed(f"{name}, streamed", streamed)
    if ask.extras and ask.output != whole.output_tokens:
        seen = f"{whole.output_tokens} tokens instead of {ask.output}"
        return Check(name, Held.FAILS, seen, "ignore_eos is not heeded: answers end where they like.")
    first = (streamed.ttft or 0.0) * 1000
    return Check(name, Held.HOLDS, f"{streamed.output_tokens} tokens, first after {first:.0f} ms; streamed and whole")
