"""The KV cache of a model as JSON data of schema ``kvroom/1``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kvroom.report.as_json import cleaned
from kvroom.report.schema import SCHEMA
from kvroom.sizing.kv import KvRow, KvTable


def kv_data(table: KvTable, counts: Sequence[int], notes: Sequence[str]) -> dict[str, Any]:
    """``table`` ready for ``json.dumps``: sizes are integer bytes of one GPU unless the name says total."""
    prediction = table.prediction
    args, settings, backend, layout = prediction.setup.args, prediction.settings, prediction.backend, prediction.layout
    assert settings is not None
    assert backend is not None
    assert layout is not None
    data = {
        "schema": SCHEMA,
        "kind": "kv",
        "model": args.model,
        "vllm_version": str(prediction.setup.release),
        "device": prediction.setup.machine.device.name,
        "attention_backend": backend.name,
        "kv_cache_dtype": settings.kv_cache_dtype,
        "dtype": settings.dtype,
        "tensor_parallel_size": args.tensor_parallel_size,
        "pipeline_parallel_size": args.pipeline_parallel_size,
        "block_size": layout.block_size,
        "bytes_per_block": layout.bytes_per_block,
        "token_bytes": table.token_bytes,
        "total_token_bytes": table.total_token_bytes,
        "copies": table.copies,
        "pool_bytes": table.pool_bytes,
        "pool_why": table.pool_why or None,
        "rows": [_row(row, counts) for row in table.rows],
        "notes": list(notes),
    }
    return {key: cleaned(value) for key, value in data.items()}


def _row(row: KvRow, counts: Sequence[int]) -> dict[str, Any]:
    return {
        "context": row.length,
        "blocks": row.blocks,
        "sequence_bytes": row.sequence_bytes,
        "needed_bytes": row.needed_bytes,
        "batches": [
            {
                "sequences": count,
                "bytes": row.batch_bytes(count),
                "fits": None if row.sequences is None else count <= row.sequences,
            }
            for count in counts
        ],
        "sequences": row.sequences,
        "max_concurrency": row.concurrency,
        "kinds": [{"kind": kind.kind, "layers": kind.layers, "bytes": kind.n_bytes} for kind in row.kinds],
    }
