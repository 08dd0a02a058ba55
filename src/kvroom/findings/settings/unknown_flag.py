"""KVR114: a flag that no release has."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kvroom.findings.finding import Evidence, Finding, Rule, Severity, explanation
from kvroom.vllm.flags import flags_for, lifetime, nearest, spelling
from kvroom.vllm.items import is_option

if TYPE_CHECKING:
    from kvroom.ledger.predict import Prediction

RULE = Rule(
    "KVR114",
    "unknown-flag",
    Severity.ERROR,
    "No known release of vLLM has this flag.",
    explanation(
        what="""
            Reports a flag that none of the releases known here accepts, with the nearest spelling in this
            one.
            """,
        why="""
            `vllm serve` refuses to start with "unrecognized arguments".
            Most are slips, or flags of another server.
            """,
        example="`--max-modle-len 8192`: did you mean `--max-model-len`?",
        cure="""
            Correct the spelling.
            A flag of a plug-in or a fork is reported too; then the finding can be ignored.
            """,
        since="All releases.",
        references="`vllm/engine/arg_utils.py: EngineArgs.add_cli_args`",
    ),
)


def find(prediction: Prediction) -> Iterator[Finding]:
    """One finding for each such flag."""
    release = prediction.setup.release
    for word in prediction.setup.args.unknown:
        if not is_option(word):
            continue
        option = spelling(word.split("=", 1)[0]).split(".", 1)[0]
        if lifetime(option) is not None:
            continue
        near = nearest(option, flags_for(release))
        yield RULE.found(
            f"No release of vLLM has {option[:60]}{f'; did you mean {near}?' if near else '.'}",
            evidence=(Evidence(word),),
            advice=(f"Write {near}.",) if near else (f"Remove {option[:60]}.",),
        )
