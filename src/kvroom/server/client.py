"""Requests to one server: bounded in number, time and size, to no other host, through no proxy."""

from __future__ import annotations

import asyncio
import json
import ssl
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from kvroom.errors import UsageError, short
from kvroom.server.address import Access
from kvroom.server.extra import required
from kvroom.server.outcome import Failed, Failure
from kvroom.version import __version__

if TYPE_CHECKING:
    import httpx

_LARGEST = 8_000_000
"""Bytes of an answer that are read."""
_CONNECT_S = 5.0
_NO_ROUTE = ("All connection attempts failed", "[Errno")
PATIENCE = 10.0
"""Seconds for an answer that costs the server nothing."""


class Budget:
    """How many generation requests may still be sent, and until when. It counts down as they are."""

    def __init__(self, requests: int, seconds: float) -> None:
        self.requests = requests
        self.seconds = seconds
        self.sent = 0
        self._ends = time.monotonic() + seconds

    @property
    def left(self) -> int:
        """Requests; none once the time is over."""
        return max(self.requests - self.sent, 0) if self.time_left > 0 else 0

    @property
    def time_left(self) -> float:
        """Seconds."""
        return max(self._ends - time.monotonic(), 0.0)

    def take(self) -> None:
        """Count one request; raises Failed when there is none left."""
        if not self.left:
            what = f"{self.requests:,} requests" if self.time_left else f"{self.seconds:g} s"
            raise Failed(Failure.BUDGET, f"the {what} allowed are used up")
        self.sent += 1


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole answer."""

    status: int
    text: str
    seconds: float
    location: str = ""

    def json(self) -> Any:
        """What the answer holds, or None where it is no JSON."""
        try:
            return json.loads(self.text)
        except (ValueError, RecursionError):
            return None

    @property
    def error(self) -> str:
        """The message in an OpenAI-style error (flat up to vLLM 0.10.0, nested since), else what there is."""
        data = self.json()
        if isinstance(data, dict):
            inner = data.get("error", data)
            said = inner.get("message") if isinstance(inner, dict) else inner
            said = said or data.get("detail")
            if said:
                return said if isinstance(said, str) else short(json.dumps(said), 400)
        return short(" ".join(self.text.split()), 200)


class Client:
    """A server at ``base``; ``patience``: seconds for a short answer. ``async with`` it."""

    def __init__(self, base: str, access: Access, budget: Budget, patience: float = PATIENCE) -> None:
        self.base = base
        self.patience = patience
        self.budget = budget
        self._access = access
        self._httpx = required("httpx")
        self._http: httpx.AsyncClient | None = None

    async def __aenter__(self) -> Self:
        httpx = self._httpx
        try:
            base = httpx.URL(self.base)
        except httpx.InvalidURL as error:
            raise UsageError(
                f"{short(self.base)} is not the URL of a server: {error}.", "Write the host's name as DNS has it."
            ) from None
        self._http = httpx.AsyncClient(
            base_url=base,
            headers=[
                ("User-Agent", f"kvroom/{__version__}"),
                ("Accept-Encoding", "identity"),
                *self._access.headers,
            ],
            verify=_trust(self._access) if self.base.startswith("https:") or self._access.ca_file else False,
            timeout=httpx.Timeout(None, connect=_CONNECT_S),
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=None),
            follow_redirects=False,
            trust_env=False,  # no proxy and no .netrc: only the host that was named
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        if self._http is not None:
            await self._http.aclose()

    async def ask(self, method: str, path: str, body: Any = None, *, seconds: float | None = None) -> Answer:
        """The answer to one request, whatever its status; raises Failed when there is none within ``seconds``."""
        seconds = self.patience if seconds is None else seconds
        began = time.perf_counter()
        try:
            async with asyncio.timeout(seconds), self.stream(method, path, body) as response:
                parts: list[bytes] = []
                size = 0
                async for part in response.aiter_raw():
                    parts.append(part)
                    size += len(part)
                    if size > _LARGEST:
                        raise Failed(Failure.GARBAGE, f"{path} answers with more than {_LARGEST:,} bytes")
                text = b"".join(parts).decode("utf-8", "replace")
                location = response.headers.get("location", "")
        except TimeoutError:
            raise Failed(Failure.TIMEOUT, f"{path} gave no answer in {seconds:g} s") from None
        return Answer(response.status_code, self.hide(text), time.perf_counter() - began, self.hide(location))

    @asynccontextmanager
    async def stream(self, method: str, path: str, body: Any = None) -> AsyncIterator[httpx.Response]:
        """The answer while it comes; every way in which the connection can break raises Failed."""
        assert self._http is not None, "async with it"
        httpx = self._httpx
        try:
            async with self._http.stream(method, path, json=body) as response:
                yield response
        except httpx.ConnectTimeout:
            secure = self.base.startswith("https:")
            what = "no TLS connection to" if secure else "nobody answers at"
            kind = Failure.TLS if secure else Failure.UNREACHABLE
            raise Failed(kind, f"{what} {self.base} within {_CONNECT_S:g} s") from None
        except httpx.ConnectError as error:
            raise _unconnected(error, self.base) from None
        except httpx.RemoteProtocolError as error:
            text = str(error)
            ended = "disconnected" in text or "closed connection" in text
            kind = Failure.DROPPED if ended else Failure.GARBAGE
            raise Failed(kind, "the connection ended early" if ended else f"no HTTP: {short(text)}") from None
        except (httpx.ReadError, httpx.WriteError, httpx.CloseError) as error:
            raise Failed(Failure.DROPPED, f"the connection broke: {self.hide(str(error)) or 'reset'}") from None
        except httpx.HTTPError as error:
            raise Failed(Failure.GARBAGE, short(self.hide(f"{type(error).__name__}: {error}"))) from None
        except httpx.InvalidURL as error:
            raise UsageError(f"{short(self.base)} is not the URL of a server: {error}.") from None

    def hide(self, text: str) -> str:
        """``text`` without the keys that were sent."""
        return self._access.hide(text)


def _trust(access: Access) -> ssl.SSLContext:
    """The system's certificates, and those of ``--ca-file``; UsageError where that cannot be read."""
    context = ssl.create_default_context()
    if access.ca_file is not None:
        try:
            context.load_verify_locations(cafile=access.ca_file)
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or str(error)
            raise UsageError(f"--ca-file {short(access.ca_file)}: no certificates can be read: {why}.") from None
    if access.insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _unconnected(error: Exception, base: str) -> Failed:
    text = str(error)
    if "CERTIFICATE_VERIFY_FAILED" in text or "certificate" in text.lower():
        why = text.rsplit("certificate verify failed: ", maxsplit=1)[-1].split(" (_ssl", maxsplit=1)[0]
        return Failed(Failure.TLS, f"the certificate of {base} is not trusted: {why}")
    if base.startswith("https:") and not any(word in text for word in _NO_ROUTE):
        why = short(text.partition(" (_ssl")[0]) or "it is closed at once"
        return Failed(Failure.TLS, f"no TLS connection to {base}: {why}")
    return Failed(Failure.UNREACHABLE, f"nobody answers at {base}: {short(text) or 'no connection'}")
