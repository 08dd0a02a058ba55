"""Runs a coroutine against a fake server, as the command would."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from kvroom.server.address import Access
from kvroom.server.client import Budget, Client
from kvroom.server.meter import Meter

T = TypeVar("T")
ANYBODY = Access()


def asked(
    url: str,
    what: Callable[[Client, Meter], Awaitable[T]],
    *,
    access: Access = ANYBODY,
    requests: int = 1000,
    seconds: float = 60.0,
    stuck_s: float = 0.6,
    silent_s: float = 1.2,
) -> T:
    """What ``what`` gives, of a client and a meter of the server at ``url``."""

    async def run() -> T:
        async with Client(url, access, Budget(requests, seconds)) as client:
            return await what(client, Meter(client, stuck_s, silent_s))

    return asyncio.run(run())
