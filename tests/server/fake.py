"""A small server that speaks as vLLM does: it schedules requests into blocks and seats, and can be made to fail.

It runs in a thread of its own on 127.0.0.1.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

WORDS = 400
"""Tokens of its vocabulary: a word is the token of its position in the alphabet of words seen."""


@dataclass
class Request:
    """A request on its way through the scheduler."""

    prompt: int
    output: int
    written: int = 0
    blocks: int = 0
    fresh: asyncio.Event = field(default_factory=asyncio.Event)
    gone: bool = False


@dataclass
class Behaviour:
    """What the server is like; the defaults are vLLM 0.32's."""

    model: str = "tiny"
    max_model_len: int | None = 512
    version: str | None = "0.32.0"
    block_size: int = 16
    num_blocks: int = 129
    """One of them is never handed out."""
    seats: int = 256
    step_s: float = 0.001
    clips: bool = True
    """Cuts max_tokens down instead of refusing."""
    key: str | None = None
    metrics: bool = True
    tokenize: bool = True
    chat_template: bool = True
    known_fields: bool = True
    takes_ids: bool = True
    completions: bool = True
    generation: str = "ok"
    """Or ``500``, ``garbage``, ``html``, ``error event``, ``cut``, ``silent``, ``no tokens``, ``binary event``."""
    everything: str = "ok"
    """Or ``silent``, ``garbage``, ``html``, ``redirect``, ``503``: how every request is answered."""
    dies_after: int | None = None
    """Requests answered until it is gone."""
    goes_silent_after: int | None = None
    redirect_to: str = ""


class FakeServer:
    """``with FakeServer(Behaviour()) as server``: ``server.url``; ``server.seen`` are the requests it got."""

    def __init__(self, behaviour: Behaviour | None = None, tls: tuple[str, str] | None = None) -> None:
        self.behaviour = behaviour or Behaviour()
        self._tls = tls
        self._waiting: list[Request] = []
        self._running: list[Request] = []
        self.preemptions = 0
        self.peak_running = 0
        self.answered = 0
        self.seen: list[tuple[str, str, dict[str, str], Any]] = []
        self._ready = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()
        self.url = ""

    def __enter__(self) -> Self:
        self._thread.start()
        self._ready.wait()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join()
        self._loop.close()

    def _run(self) -> None:
        self._loop.run_until_complete(self._serve())

    async def _serve(self) -> None:
        self._end = asyncio.Event()
        context = None
        if self._tls:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*self._tls)
        self._listening = await asyncio.start_server(self._connected, "127.0.0.1", 0, ssl=context)
        port = self._listening.sockets[0].getsockname()[1]
        self.url = f"{'https' if self._tls else 'http'}://127.0.0.1:{port}"
        engine = asyncio.create_task(self._engine())
        self._ready.set()
        await self._end.wait()
        self._listening.close()
        engine.cancel()
        for _ in range(3):  # who was accepted in the last moment connects meanwhile, and transports close their sockets
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(engine, *self._tasks, return_exceptions=True)
            while self._writers:
                self._writers.pop().transport.abort()
            await asyncio.sleep(0.01)

    @property
    def _usable(self) -> int:
        return self.behaviour.num_blocks - 1

    def _free(self) -> int:
        return self._usable - sum(request.blocks for request in self._running)

    def _need(self, request: Request) -> int:
        return -(-(request.prompt + request.written + 1) // self.behaviour.block_size)

    async def _engine(self) -> None:
        tick = self._loop.time()
        while True:
            tick = max(tick + self.behaviour.step_s, self._loop.time() - self.behaviour.step_s)
            await asyncio.sleep(max(tick - self._loop.time(), 0.0))
            self._waiting = [request for request in self._waiting if not request.gone]
            self._running = [request for request in self._running if not request.gone]
            for request in list(self._running):
                if request not in self._running:
                    continue
                while self._need(request) - request.blocks > self._free():
                    victim = self._running.pop()
                    victim.blocks = 0
                    self._waiting.insert(0, victim)
                    self.preemptions += 1
                    if victim is request:
                        break
                else:
                    request.blocks = self._need(request)
                    self._write(request)
            while self._waiting and len(self._running) < self.behaviour.seats:
                request = self._waiting[0]
                if self._need(request) > self._free():
                    break
                request.blocks = self._need(request)
                self._running.append(self._waiting.pop(0))
                self.peak_running = max(self.peak_running, len(self._running))

    def _write(self, request: Request) -> None:
        request.written += 1
        request.fresh.set()
        if request.written >= request.output:
            self._running.remove(request)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self._writers.add(writer)
        try:
            while True:
                begin = await reader.readexactly(1)
                if not begin.isalpha():  # the hello of TLS
                    break
                head = (begin + await reader.readuntil(b"\r\n\r\n")).decode()
                first, *lines = head.strip().split("\r\n")
                method, path, _ = first.split(" ")
                headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
                body = await reader.readexactly(int(headers.get("content-length", 0)))
                data = json.loads(body) if body else None
                self.seen.append((method, path, headers, data))
                if not await self._answer(path, headers, data, reader, writer):
                    break
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            writer.close()
            self._tasks.discard(task)

    async def _answer(
        self, path: str, headers: dict[str, str], data: Any, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        how = self.behaviour
        if how.everything == "silent" or (how.goes_silent_after is not None and self.answered >= how.goes_silent_after):
            await self._end.wait()
        if how.everything == "garbage":
            writer.write(b"\x16\x03\x01 SSH-2.0-something\r\n\r\n")
            return False
        if how.everything == "html":
            self._send(writer, 200, "<html><body>Welcome</body></html>", "text/html")
            return True
        if how.everything == "redirect":
            self._send(writer, 302, "", location=how.redirect_to)
            return True
        if how.everything == "503":
            self._send(writer, 503, '{"error": "no healthy upstream"}')
            return True
        handler: dict[str, Callable[[], Awaitable[bool]]] = {
            "/v1/completions": lambda: self._generate(data, reader, writer, chat=False),
            "/v1/chat/completions": lambda: self._generate(data, reader, writer, chat=True),
        }
        if how.key is not None and path.startswith("/v1") and headers.get("authorization") != f"Bearer {how.key}":
            self._send(writer, 401, '{"error": "Unauthorized"}')
        elif path in handler:
            return await handler[path]()
        elif path == "/health":
            self._send(writer, 200, "")
        elif path == "/version" and how.version:
            self._send(writer, 200, json.dumps({"version": how.version}))
        elif path == "/v1/models":
            entry = {"id": how.model, "object": "model", "max_model_len": how.max_model_len, "parent": None}
            self._send(writer, 200, json.dumps({"object": "list", "data": [entry]}))
        elif path == "/metrics" and how.metrics:
            self._send(writer, 200, self._metrics(), "text/plain")
        elif path == "/tokenize" and how.tokenize:
            words = data["prompt"].split() if "prompt" in data else ["<user>", *_words(data), "<assistant>"]
            self._send(writer, 200, json.dumps({"count": len(words), "tokens": [hash(word) % WORDS for word in words]}))
        else:
            self._send(writer, 404, '{"detail": "Not Found"}')
        return True

    def _metrics(self) -> str:
        how = self.behaviour
        use = 1 - self._free() / self._usable
        return (
            "# HELP vllm:num_requests_running Number\n# TYPE vllm:num_requests_running gauge\n"
            f'vllm:num_requests_running{{engine="0",model_name="{how.model}"}} {float(len(self._running))}\n'
            f'vllm:num_requests_waiting{{engine="0",model_name="{how.model}"}} {float(len(self._waiting))}\n'
            f'vllm:kv_cache_usage_perc{{engine="0",model_name="{how.model}"}} {use!r}\n'
            "# TYPE vllm:num_preemptions_total counter\n"
            f'vllm:num_preemptions_total{{engine="0",model_name="{how.model}"}} {float(self.preemptions)}\n'
            f'vllm:cache_config_info{{block_size="{how.block_size}",num_gpu_blocks="{how.num_blocks}",'
            f'kv_cache_size_tokens="{how.num_blocks * how.block_size}",enable_prefix_caching="True"}} 1.0\n'
        )

    async def _generate(
        self, data: Any, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, chat: bool
    ) -> bool:
        how = self.behaviour
        if how.dies_after is not None and self.answered >= how.dies_after:
            self._listening.close()
            self._end.set()
            return False
        if how.generation == "500":
            self._error(writer, 500, "EngineCore encountered an issue. See stack trace (above) for the root cause.")
            return True
        if how.generation == "garbage":
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 30\r\n\r\n" + bytes(range(128, 158)))
            return True
        if how.generation == "silent":
            await self._end.wait()
        if data["model"] != how.model:
            self._error(writer, 404, f"The model `{data['model']}` does not exist. Valid aliases: {how.model}.")
            return True
        if not how.known_fields and "ignore_eos" in data:
            self._error(writer, 400, "Unrecognized request argument supplied: ignore_eos")
            return True
        if not chat and not how.completions:
            self._send(writer, 404, '{"detail": "Not Found"}')
            return True
        if not chat and not how.takes_ids and not isinstance(data["prompt"], str):
            self._error(writer, 400, "prompt: Input should be a valid string")
            return True
        if chat and not how.chat_template:
            self._error(writer, 400, "As of transformers v4.44, default chat template is no longer allowed")
            return True
        prompt = len(_words(data)) + 2 if chat else _length(data["prompt"])
        output, longest = data["max_tokens"], how.max_model_len or 10**9
        if prompt > longest or (prompt + output > longest and not how.clips):
            self._error(
                writer,
                400,
                f"This model's maximum context length is {longest} tokens. However, your prompt contains {prompt}",
            )
            return True
        request = Request(prompt, min(output, longest - prompt))
        self._waiting.append(request)
        leaves = asyncio.create_task(self._leaves(request, reader))
        try:
            return await self._told(request, writer, stream=bool(data.get("stream")), chat=chat)
        finally:
            leaves.cancel()
            await asyncio.gather(leaves, return_exceptions=True)
            request.gone = True
            self.answered += 1

    @staticmethod
    async def _leaves(request: Request, reader: asyncio.StreamReader) -> None:
        """Ends when the client goes away."""
        await reader.read(1)
        request.gone = True
        request.fresh.set()

    async def _told(self, request: Request, writer: asyncio.StreamWriter, *, stream: bool, chat: bool) -> bool:
        how, said = self.behaviour, 0
        usage = {"prompt_tokens": request.prompt, "completion_tokens": request.output}
        if stream:
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
        if how.generation == "no tokens" and stream:
            self._event(writer, "[DONE]")
            writer.write(b"0\r\n\r\n")
            return True
        if how.generation == "binary event" and stream:
            self._event(writer, "\x00\x01{")
            writer.write(b"0\r\n\r\n")
            return True
        while said < request.output:
            await request.fresh.wait()
            if request.gone:
                return False
            request.fresh.clear()
            while stream and said < request.written:
                said += 1
                if how.generation == "cut" and said == 2:
                    return False
                if how.generation == "error event" and said == 2:
                    self._event(writer, json.dumps({"error": {"message": "EngineCore died", "code": 500}}))
                    writer.write(b"0\r\n\r\n")
                    return True
                end = "length" if said == request.output else None
                part = {"delta": {"content": "x"}} if chat else {"text": "x"}
                self._event(writer, json.dumps({"choices": [{"index": 0, "finish_reason": end, **part}]}))
            said = request.written
        if not stream:
            whole = {"choices": [{"index": 0, "finish_reason": "length", "text": "x"}], "usage": usage}
            self._send(writer, 200, json.dumps(whole))
            return True
        self._event(writer, json.dumps({"choices": [], "usage": usage}))
        self._event(writer, "[DONE]")
        writer.write(b"0\r\n\r\n")
        return True

    @staticmethod
    def _event(writer: asyncio.StreamWriter, text: str) -> None:
        data = f"data: {text}\n\n".encode()
        writer.write(b"%x\r\n%s\r\n" % (len(data), data))

    def _error(self, writer: asyncio.StreamWriter, status: int, message: str) -> None:
        self._send(
            writer, status, json.dumps({"error": {"message": message, "type": "BadRequestError", "code": status}})
        )

    @staticmethod
    def _send(
        writer: asyncio.StreamWriter, status: int, text: str, kind: str = "application/json", location: str = ""
    ) -> None:
        data = text.encode()
        more = f"Location: {location}\r\n" if location else ""
        head = f"HTTP/1.1 {status} X\r\nContent-Type: {kind}\r\nContent-Length: {len(data)}\r\n{more}\r\n"
        writer.write(head.encode() + data)


def _words(data: Any) -> list[str]:
    return [word for message in data["messages"] for word in message["content"].split()]


def _length(prompt: str | list[int]) -> int:
    return len(prompt.split()) if isinstance(prompt, str) else len(prompt)
