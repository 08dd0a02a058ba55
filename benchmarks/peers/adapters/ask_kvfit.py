"""kvfit: its command with ``--json``, the card as ``custom:GiB``."""

from __future__ import annotations

import contextlib
import io
import json

from kvfit.cli import main
from protocol import GIB, Question, answer, redirect_urllib, serve, unanswered


def arguments(question: Question) -> list[str]:
    """The words after ``kvfit``."""
    ranks = str(question["ranks"])
    words = [question["model"], "--hardware", f"custom:{question['total'] / GIB}", "--gpus", ranks, "--tp", ranks]
    words += ["--context", str(question["max_model_len"]), "--utilization", str(question["utilization"])]
    words += ["--kv-dtype", "fp8" if question["kv_fp8"] else "bf16"]
    return [*words, "--allow-context-overflow", "--json"]


def ask(question: Question) -> dict[str, object]:
    """The weights and the verdict of its one layout; the pool is its budget less weights and reserve."""
    redirect_urllib(question["hub"])
    printed, said = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(said):
        main(arguments(question))
    if not printed.getvalue():
        return unanswered(said.getvalue().partition("\n")[0].removeprefix("kvfit: "))
    layout = json.loads(printed.getvalue())["layouts"][0]
    weights, reserve = layout["weights_per_rank_gib"], layout["runtime_reserve_per_rank_gib"]
    pool = layout["budget_per_rank_gib"] - weights - reserve
    return answer(weights * GIB, pool * GIB, layout["verdict"] == "fits")


if __name__ == "__main__":
    serve(ask)
