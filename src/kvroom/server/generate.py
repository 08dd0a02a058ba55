"""One generation, streamed, with its times taken as ``vllm bench serve`` takes them."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

from kvroom.errors import short
from kvroom.server.client import Answer, Client
from kvroom.server.outcome import Failed, Failure, Outcome

_LONGEST_LINE = 4_000_000
_ERROR_BODY = 100_000
COMPLETIONS = "/v1/completions"
CHAT = "/v1/chat/completions"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """One request: token ids or text to ``/v1/completions``, text to ``/v1/chat/completions``."""

    model: str
    prompt: tuple[int, ...] | str
    output: int
    """Tokens to write."""
    chat: bool = False
    extras: bool = True
    """Whether the server takes vLLM's own fields; without them an answer may end early."""
    stream: bool = True

    @property
    def path(self) -> str:
        """Where it is sent."""
        return CHAT if self.chat else COMPLETIONS

    def body(self) -> dict[str, Any]:
        """The JSON to send. Sampling is left to the server's defaults, as ``vllm bench serve`` leaves it."""
        body: dict[str, Any] = {"model": self.model}
        if self.chat:
            body["messages"] = [{"role": "user", "content": self.prompt}]
        else:
            body["prompt"] = self.prompt if isinstance(self.prompt, str) else list(self.prompt)
        body["max_tokens"] = self.output
        if self.stream:
            body |= {"stream": True, "stream_options": {"include_usage": True}}
        if self.extras:
            body |= {"ignore_eos": True, "repetition_penalty": 1.0}
        return body


@dataclass(slots=True)
class Progress:
    """How far a generation is, for whoever watches it."""

    started: float = field(default_factory=time.perf_counter)
    first: float | None = None
    last: float | None = None
    itls: list[float] = field(default_factory=list)
    chunks: int = 0
    prompt_tokens: int = 0
    usage: int | None = None
    finish: str = ""
    sent: bool = False
    ended: bool = False

    def event(self, data: Any) -> None:
        """Take one event of the stream. Raises Failed for an error in it, or for what is no event."""
        if not isinstance(data, dict):
            raise Failed(Failure.GARBAGE, "an event of the stream is no JSON object")
        if data.get("error"):
            error = data["error"]
            text = error.get("message") if isinstance(error, dict) else error
            raise Failed(Failure.SERVER_ERROR, short(str(text), 400))
        choices, usage = data.get("choices"), data.get("usage")
        if isinstance(choices, list) and choices:
            now = time.perf_counter()
            if self.first is None:
                self.first = now
            else:
                self.itls.append(now - (self.last or now))
            self.last = now
            self.chunks += 1
            if isinstance(choices[0], dict):
                self.finish = str(choices[0].get("finish_reason") or self.finish)
        if isinstance(usage, dict):
            self.prompt_tokens = _count(usage.get("prompt_tokens"), self.prompt_tokens)
            self.usage = _count(usage.get("completion_tokens"), self.chunks)

    def outcome(self, failed: Failed | None = None, waited: float = 0.0) -> Outcome:
        """What it came to, now that it is over."""
        first, last = self.first, self.last
        return Outcome(
            failure=failed.kind if failed else None,
            message=str(failed) if failed else "",
            status=(failed.status if failed else 200),
            started=self.started,
            ttft=None if first is None else first - self.started,
            latency=None if last is None else last - self.started,
            itls=tuple(self.itls),
            prompt_tokens=self.prompt_tokens,
            output_tokens=self.chunks if self.usage is None else self.usage,
            finish=self.finish,
            waited=waited,
        )


async def generate(client: Client, ask: Ask, seconds: float, progress: Progress, *, counted: bool = True) -> Outcome:
    """Send ``ask`` and read its stream to the end, for at most ``seconds``; failures are outcomes."""
    failed: Failed | None = None
    try:
        if counted:
            client.budget.take()
        progress.started, progress.sent = time.perf_counter(), True
        within = min(seconds, client.budget.time_left)
        async with asyncio.timeout(within), client.stream("POST", ask.path, ask.body()) as response:
            if response.status_code != 200:
                raise await _refusal(client, response)
            async for data in _events(response.aiter_raw()):
                progress.event(data)
            if progress.first is None:
                raise Failed(Failure.GARBAGE, "it answers 200 and brings no token")
    except TimeoutError:
        if within < seconds:
            failed = Failed(Failure.BUDGET, f"cut off: the {client.budget.seconds:g} s allowed are over")
        else:
            what = "no token" if progress.first is None else "no end of the answer"
            failed = Failed(Failure.TIMEOUT, f"{what} within {seconds:g} s")
    except Failed as error:
        failed = Failed(error.kind, client.hide(str(error)), error.status)
    finally:
        progress.ended = True
    if failed is None and not progress.finish:
        failed = Failed(Failure.DROPPED, "the stream ended before the answer did")
    return progress.outcome(failed)


async def generate_whole(client: Client, ask: Ask, seconds: float) -> Outcome:
    """Send ``ask`` without streaming; times are those of the whole answer."""
    began = time.perf_counter()
    try:
        client.budget.take()
        answer = await client.ask("POST", ask.path, ask.body(), seconds=seconds)
        if answer.status != 200:
            raise status_failure(answer)
        data = answer.json()
        usage = data.get("usage") if isinstance(data, dict) else None
        if not isinstance(usage, dict) or not data.get("choices"):
            raise Failed(Failure.GARBAGE, f"no completion: {short(answer.text, 80)}", 200)
        return Outcome(
            status=200,
            started=began,
            latency=answer.seconds,
            prompt_tokens=_count(usage.get("prompt_tokens"), 0),
            output_tokens=_count(usage.get("completion_tokens"), 0),
            finish=str(data["choices"][0].get("finish_reason") or ""),
        )
    except (Failed, AttributeError, KeyError, TypeError) as error:
        failed = error if isinstance(error, Failed) else Failed(Failure.GARBAGE, "the answer is no completion", 200)
        return Outcome(failure=failed.kind, message=str(failed), status=failed.status, started=began)


def status_failure(answer: Answer) -> Failed:
    """The failure that an answer with another status than 200 is."""
    if 300 <= answer.status < 400:
        return Failed(Failure.REDIRECT, f"it redirects to {short(answer.location)}", answer.status)
    kind = Failure.REFUSED if 400 <= answer.status < 500 else Failure.SERVER_ERROR
    return Failed(kind, answer.error or f"HTTP {answer.status}", answer.status)


async def _refusal(client: Client, response: Any) -> Failed:
    body = b""
    async for part in response.aiter_raw():
        body += part
        if len(body) > _ERROR_BODY:
            break
    text = client.hide(body.decode("utf-8", "replace"))
    return status_failure(Answer(response.status_code, text, 0.0, client.hide(response.headers.get("location", ""))))


async def _events(parts: AsyncIterator[bytes]) -> AsyncIterator[Any]:
    """The JSON of each event of a stream (``data: {...}``), until ``[DONE]`` or its end; raises Failed for garbage."""
    rest = b""
    async for part in parts:
        rest += part
        *lines, rest = rest.split(b"\n")
        if len(rest) > _LONGEST_LINE:
            raise Failed(Failure.GARBAGE, "a line of the stream does not end")
        for line in lines:
            text = line.strip()
            if not text.startswith(b"data:"):
                if text and not text.startswith((b":", b"event:", b"id:", b"retry:")):
                    raise Failed(Failure.GARBAGE, f"no event stream: {short(repr(text[:60]), 80)}")
                continue
            text = text[5:].strip()
            if text == b"[DONE]":
                return
            try:
                yield json.loads(text)
            except (ValueError, RecursionError):
                raise Failed(Failure.GARBAGE, f"an event is no JSON: {short(repr(text[:60]), 80)}") from None


def _count(value: Any, default: int) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**40 else default
