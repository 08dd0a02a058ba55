"""Traced activation peaks beside logged ones: ``python -m benchmarks.tracing`` (needs ``kvroom engine install``).

The logged figures and where they are from are in ``traced.json``. A row whose release is not installed, or
that cannot be traced, is listed with the reason.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from kvroom.errors import KvroomError
from kvroom.plans.make import plan_tokens
from kvroom.plans.request import Request
from kvroom.tracing.exact import exact_plan
from kvroom.units import GIB

ROWS = Path(__file__).with_name("traced.json")
NEAR_GIB, NEAR_SHARE = 0.1, 0.05


def compared(row: dict[str, Any]) -> dict[str, Any]:
    """``row`` with what the rules and the trace say, in GiB; ``problem`` where there is no trace."""
    request = Request(gpu=row["gpu"], vllm=row["release"], offline=True)
    try:
        plan = plan_tokens([row["model"], *row["flags"]], {}, request)
        exact = exact_plan(plan, offline=True)
    except KvroomError as error:
        return {**row, "problem": error.problem}
    ledger = plan.prediction.ledger
    ruled = ledger.activation.expected / GIB if ledger else None
    if exact.answer is None:
        return {**row, "ruled": ruled, "problem": exact.problem}
    traced = exact.answer.activation / GIB
    off = abs(traced - row["activation"])
    near = off <= NEAR_GIB or off <= NEAR_SHARE * row["activation"]
    return {**row, "ruled": ruled, "traced": traced, "near": near, "seconds": exact.answer.seconds}


def main() -> None:
    """Print the table, or with ``--json`` the rows."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    rows = [compared(row) for row in json.loads(ROWS.read_text("utf-8"))["rows"]]
    if asked.json:
        print(json.dumps(rows, indent=1))
        return
    print(f"{'release':8} {'model':42} {'logged':>7} {'traced':>7} {'rules':>7}  seconds")
    for row in rows:
        if "traced" not in row:
            print(f"{row['release']:8} {row['model']:42} {row['activation']:7.2f}  {row['problem'][:120]}")
            continue
        line = f"{row['activation']:7.2f} {row['traced']:7.3f} {row['ruled']:7.3f}  {row['seconds']:.0f}"
        print(f"{row['release']:8} {row['model']:42} {line}{'' if row['near'] else '  far'}")
    traced = [row for row in rows if "traced" in row]
    print(f"{sum(row['near'] for row in traced)} of {len(traced)} traced rows within 0.1 GiB or 5 %")


if __name__ == "__main__":
    main()
