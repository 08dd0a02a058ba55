"""hf-mem: weights and the KV cache of one request of the longest length; it knows no card and no pool."""

from __future__ import annotations

import httpx2
from hf_mem.run import run
from protocol import HUB, Question, answer, serve

_CLIENT = httpx2.AsyncClient


def local_client(hub: str) -> type:
    """An HTTP client that finds the hub at ``hub``."""

    class Client(_CLIENT):
        """Asks the local stand-in what is asked of the hub."""

        async def get(self, url: str, **more: object) -> object:
            """As httpx2 does, from the stand-in."""
            return await super().get(url.replace(HUB, hub, 1), **more)

    return Client


def ask(question: Question) -> dict[str, object]:
    """Weights over the ranks; it fits where weights and cache are within total x utilisation."""
    httpx2.AsyncClient = local_client(question["hub"])
    result = run(
        question["model"],
        experimental=True,
        max_model_len=question["max_model_len"],
        kv_cache_dtype="fp8" if question["kv_fp8"] else "bfloat16",
    )
    weights, budget = result.memory / question["ranks"], question["total"] * question["utilization"]
    fits = None if result.kv_cache is None else result.total_memory / question["ranks"] <= budget
    return answer(weights, budget - weights, fits)


if __name__ == "__main__":
    serve(ask)
