"""What an adapter speaks: a JSON question a line on stdin, a JSON answer a line on stdout; standard library only.

A question states one launch (``benchmarks.peers.questions``). An answer holds what the peer says per GPU: ``weights``
and ``pool`` in bytes and ``fits``, each None where the peer has no such figure, or why nothing was answered under
``unanswered``. What the peer prints goes to stderr.
"""

from __future__ import annotations

import json
import os
import sys
import urllib.request
from collections.abc import Callable, Mapping
from typing import Any

GIB = 1024**3
Question = Mapping[str, Any]
HUB = "https://huggingface.co"


def answer(weights: float | None = None, pool: float | None = None, fits: bool | None = None) -> dict[str, Any]:
    """An answer: bytes per GPU, and whether the launch starts."""
    return {"weights": weights, "pool": pool, "fits": fits}


def unanswered(reason: str) -> dict[str, Any]:
    """An answer that is none."""
    return {"unanswered": " ".join(reason.split())[:200]}


def serve(ask: Callable[[Question], Mapping[str, Any]]) -> None:
    """Answer every question on stdin with ``ask``; whatever it raises is the reason for no answer."""
    with os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8") as answers:
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
        for line in sys.stdin:
            question = json.loads(line)
            try:
                found = ask(question)
            except (Exception, SystemExit) as error:  # noqa: BLE001 - a peer may raise anything; its words are the reason
                found = unanswered(str(error) or type(error).__name__)
            answers.write(json.dumps({"id": question["id"], **found}) + "\n")
            answers.flush()


class _ToHub(urllib.request.BaseHandler):
    """Sends requests that a peer makes of the hub to the local stand-in."""

    handler_order = 100

    def __init__(self, hub: str) -> None:
        self._hub = hub

    def https_request(self, request: urllib.request.Request) -> urllib.request.Request:
        """The request, to the stand-in where it was for the hub."""
        if request.full_url.startswith(HUB):
            request.full_url = self._hub + request.full_url.removeprefix(HUB)
        return request


def redirect_urllib(hub: str) -> None:
    """Let ``urllib`` find the hub at ``hub``."""
    urllib.request.install_opener(urllib.request.build_opener(_ToHub(hub)))
