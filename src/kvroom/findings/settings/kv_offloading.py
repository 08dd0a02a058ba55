"""KVR107: KV offloading does not enlarge the GPU's pool."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kvroom.findings.finding import Finding, Rule, Severity, explanation
from kvroom.findings.settings.common import flag
from kvroom.units import show_bytes

if TYPE_CHECKING:
    from kvroom.ledger.predict import Prediction

RULE = Rule(
    "KVR107",
    "kv-offloading-does-not-extend-the-pool",
    Severity.NOTE,
    "KV offloading keeps copies of blocks in host memory; pool and start-up check stay the same.",
    explanation(
        what="""
            Reports `--kv-offloading-size`, and an offloading connector in `--kv-transfer-config`.
            """,
        why="""
            A request runs only with all its blocks on the GPU, so one request of `max_model_len` has to fit
            there whatever the size of the host's cache.
            What offloading brings is that prefixes evicted from the GPU are read back instead of computed
            again.
            """,
        example="""
            `--kv-offloading-size 64` on a launch that fails with "3.21 GiB KV cache is needed, which is
            larger than the available KV cache memory (3.06 GiB)": it fails with the same message.
            """,
        cure="""
            To fit a longer request, free memory on the GPU or shorten `--max-model-len`.
            Keep offloading where many requests share long prefixes.
            """,
        since="`--kv-offloading-size` exists since vLLM 0.11.2; the connectors are older.",
        references="`vllm/config/cache.py: CacheConfig.kv_offloading_size`, `vllm/distributed/kv_transfer`",
    ),
)


def find(prediction: Prediction) -> Iterator[Finding]:
    """The finding where KV blocks are offloaded."""
    args, pool = prediction.setup.args, prediction.pool
    connector = str((args.kv_transfer_config or {}).get("kv_connector", ""))
    if args.kv_offloading_size:
        evidence = flag("kv_offloading_size", args.kv_offloading_size)
    elif "offload" in connector.lower():
        evidence = flag("kv_transfer_config", connector)
    else:
        return
    need = f": one request still needs {show_bytes(pool.needed_bytes)} on the GPU" if pool else ""
    yield RULE.found(
        f"Offloaded blocks do not count in the start-up check{need}.",
        evidence=(evidence,),
        advice=("Free memory on the GPU or lower --max-model-len if one request has to fit.",)
        if pool is not None and not pool.fits
        else (),
    )
