"""KVR249: a model that brings its own code."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kvroom.findings.case import shown
from kvroom.findings.finding import Finding, Rule, Severity, explanation
from kvroom.findings.refusals.common import cause, model_of

if TYPE_CHECKING:
    from kvroom.findings.case import Case

RULE = Rule(
    "KVR249",
    "remote-code-needed",
    Severity.ERROR,
    "The model's config or tokenizer is Python code in its repository, which runs only when it is trusted.",
    explanation(
        what="Reads the refusals of transformers and vLLM to run code that the model's repository brings.",
        why="""
            Some repositories hold their own configuration, tokenizer or model classes (`auto_map` in
            config.json).
            They are Python files that run with all rights of the server, so they need an explicit yes.
            vLLM's own wording also appears where the installed transformers is too old to know the model.
            """,
        example="A model whose config.json has an `auto_map` entry, served without `--trust-remote-code`.",
        cure="""
            Read the code, pin it with `--revision` and `--code-revision`, then `--trust-remote-code`.
            If the repository has no Python files, take a newer transformers instead.
            """,
        since="All releases.",
        references="`vllm/transformers_utils/config.py: get_config`",
    ),
)


def find(case: Case) -> Iterator[Finding]:
    """The finding with the model."""
    fact = cause(case, "err_remote_code")
    if fact is None:
        return
    what = "tokenizer" if "tokenizer" in fact.text.lower() else "config"
    if case.setting("trust_remote_code"):
        advice = ["A newer transformers, which may know the model: --trust-remote-code is set."]
    else:
        advice = [
            "--trust-remote-code (after reading the Python files of the repository)",
            "Without Python files there: take a newer transformers.",
        ]
    yield RULE.found(
        f"The {what} of {model_of(case)} needs code from its repository.",
        "Such code runs with all rights of the server, so vLLM runs it only with --trust-remote-code.",
        evidence=(shown(fact),),
        advice=advice,
    )
