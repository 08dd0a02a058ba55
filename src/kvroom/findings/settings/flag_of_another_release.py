"""KVR113: a flag that other releases have and this one does not."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kvroom.findings.finding import Evidence, Finding, Rule, Severity, explanation
from kvroom.vllm.environment import earlier, instead
from kvroom.vllm.flags import flags_for, lifetime, nearest, spelling
from kvroom.vllm.items import is_option

if TYPE_CHECKING:
    from kvroom.ledger.predict import Prediction

RULE = Rule(
    "KVR113",
    "flag-of-another-release",
    Severity.ERROR,
    "The flag exists in other releases of vLLM, but not in this one.",
    explanation(
        what="""
            Looks up every flag that the release does not have in the command lines of the other releases.
            """,
        why="""
            `vllm serve` refuses to start with "unrecognized arguments".
            The usual source is a guide for another version: `--swap-space`, `--use-v2-block-manager`,
            `--calculate-kv-scales`, `--rope-scaling`.
            """,
        example="`vllm serve ... --swap-space 8` on vLLM 0.18.1: the flag was last in 0.17.1.",
        cure="Remove the flag or use the one that the finding names; or run the release that has it.",
        since="By flag.",
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
        life = lifetime(option)
        if life is None:
            continue
        first, last, _ = life
        gone = last is not None and release > last
        title = (
            f"vLLM {release} has no {option}; {last} was the last release with it."
            if gone
            else f"vLLM {release} has no {option}; it came with {first}."
        )
        cure = instead(option) if gone else earlier(option)
        if cure is None:
            near = nearest(option, flags_for(release))
            cure = f"Remove {option}{f', or use {near}' if near else ''}."
        yield RULE.found(title, evidence=(Evidence(word),), advice=(cure,))
