"""KVR302: a request names a model that the server does not serve under that name."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kvroom.findings.case import shown
from kvroom.findings.finding import Finding, Rule, Severity, explanation
from kvroom.redaction import clean

if TYPE_CHECKING:
    from kvroom.findings.case import Case

RULE = Rule(
    "KVR302",
    "unknown-model-name",
    Severity.WARNING,
    "A request named a model that the server does not know under that name.",
    explanation(
        what="""
            Recognises the answer 404 "The model ... does not exist" and compares the name with what the server
            was started with.
            """,
        why="""
            The name in a request must be equal to a served name, letter for letter.
            That is the value of `--served-model-name`, or the model as it was written on the command line, path
            and all; with `--served-model-name` the path no longer counts.
            Names of LoRA adapters count as well.
            """,
        example="""
            A server started with `vllm serve /models/qwen3-8b` answers requests for `/models/qwen3-8b`, and
            refuses `Qwen/Qwen3-8B`.
            """,
        cure="""
            Send a served name (`GET /v1/models` lists them), or add the other one:
            `--served-model-name first second`.
            """,
        since="All releases; the answer lists the valid names since 0.32.",
        references="`vllm/entrypoints/serve/engine/serving.py: _check_model`, `--served-model-name`",
    ),
)
_LONGEST = 120


def find(case: Case) -> Iterator[Finding]:
    """The finding with the name asked for and the names that are served."""
    fact = case.reading.facts.first("unknown_model")
    if fact is None:
        return
    name, served = _short(fact.values["model"]), _served(case)
    known = f"it serves {' and '.join(f'`{one}`' for one in served)}" if served else "it serves another name"
    advice = [f'"model": "{served[0]}" in the request.'] if served else ["GET /v1/models lists the names to send."]
    others = [one for one in served if one != name]
    advice.append("--served-model-name " + " ".join([*others[:3], name]))
    yield RULE.found(
        f"A request asked the server for the model `{name}`; {known}.",
        "The names are compared letter for letter. The request got HTTP 404; the server is fine.",
        evidence=(shown(fact),),
        advice=advice,
    )


def _served(case: Case) -> list[str]:
    """The names that the server answers to, as far as the log or the command says."""
    names = case.setting("served_model_name")
    if names is None and case.prediction is not None:
        names = getattr(case.prediction.setup.args, "served_model_name", None)
    if isinstance(names, str):
        names = [names]
    if not names:
        names = [case.reading.model] if case.reading.model else []
    return [_short(str(name)) for name in names][:3]


def _short(name: str) -> str:
    text = clean(name)
    return text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..."
