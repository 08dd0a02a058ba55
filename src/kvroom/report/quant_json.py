"""Ways to store the weights as JSON data of schema ``kvroom/1``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kvroom.report.as_json import cleaned
from kvroom.report.schema import SCHEMA
from kvroom.sizing.checkpoints import Listed
from kvroom.sizing.quant import QuantTable


def quant_data(table: QuantTable, found: Mapping[str, Listed] | None, notes: Sequence[str]) -> dict[str, Any]:
    """``table`` ready for ``json.dumps``: bytes of one GPU."""
    machine = table.setup.machine
    data = {
        "schema": SCHEMA,
        "kind": "quant",
        "model": table.setup.args.model,
        "vllm_version": str(table.setup.release),
        "device": machine.device.name,
        "count": machine.count,
        "context": table.context,
        "concurrency": table.concurrency,
        "rows": [
            {
                "name": row.name,
                "label": row.label,
                "runs": bool(row.runs),
                "computed": row.runs or None,
                "why_not": row.why_not or None,
                "weights_bytes": row.weights_bytes,
                "available_bytes": row.available_bytes,
                "tokens": row.tokens,
                "longest_context": row.longest,
                "status": str(row.status),
                "gpus": row.gpus,
                "gpus_saved": table.saved(row),
                "basis": row.basis,
                "caveat": row.caveat or None,
                "source": row.source or None,
                "checkpoint": found[row.name].repo if found and row.name in found else None,
            }
            for row in table.rows
        ],
        "notes": list(notes),
    }
    return {key: cleaned(value) for key, value in data.items()}
