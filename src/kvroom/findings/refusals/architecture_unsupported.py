"""KVR251: a model architecture that this vLLM, or its transformers, does not have."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from kvroom.findings.case import shown
from kvroom.findings.finding import Finding, Rule, Severity, explanation
from kvroom.findings.refusals.common import cause, short
from kvroom.logs.messages import WEAK
from kvroom.redaction import clean

if TYPE_CHECKING:
    from kvroom.findings.case import Case
    from kvroom.logs.facts import Fact

RULE = Rule(
    "KVR251",
    "architecture-unsupported",
    Severity.ERROR,
    "This vLLM, or its transformers, has no class for the model's architecture, or cannot import it.",
    explanation(
        what="""
            Reads the refusals of an architecture: not supported, removed, failed to be inspected, or a model
            type that the installed transformers does not recognise.
            """,
        why="""
            config.json names the architecture and the model type.
            transformers must know the type to read the config, and vLLM needs a class of its own or falls back
            to the one of transformers.
            A class is imported in a process of its own first; when that fails, the reason stands above the
            message.
            """,
        example="A model that came out after the installed release.",
        cure="""
            A newer vLLM (with the transformers that it requires); for an architecture that was removed, the
            release that the message names.
            """,
        since="All releases; the message with the last release since vLLM 0.10.0.",
        references="`vllm/model_executor/models/registry.py: _ModelRegistry._raise_for_unsupported`",
    ),
)
_IDS = ("err_arch_unsupported", "err_arch_inspect", "err_arch_removed", "err_arch_transformers", "err_arch_none")


def find(case: Case) -> Iterator[Finding]:
    """The finding with the architecture."""
    fact = cause(case, *_IDS) or _behind(case)
    if fact is None:
        return
    version = f"vLLM {case.release}" if case.release is not None else "This vLLM"
    names = ", ".join(re.findall(r"[\w-]{3,100}", fact.values.get("architectures", ""))[:3])
    newer = "Take the release of vLLM that the model card names, or the newest one."
    if fact.id == "err_arch_transformers":
        kind = short(fact.values["model_type"])
        title = f"The installed transformers does not know the model type {kind}."
        why = "It cannot read config.json; the model is newer than transformers, or the type is misspelt."
        advice = [newer, "pip install -U transformers, as far as this vLLM allows it"]
    elif fact.id == "err_arch_removed":
        last = fact.values["version"].rstrip(",")
        title = f"{version} no longer has {short(fact.values['architecture'])}; {last} was the last release with it."
        why = "The architecture was removed."
        advice = [f"pip install vllm=={last}"]
    elif fact.id == "err_arch_inspect":
        title = f"{version} has the architecture {names}, but importing its class failed."
        error = case.reading.error
        if error is not None and error.id != fact.id:
            why = f"What stopped it: {short(clean(error.text))}"
            advice = ["Install vLLM into a fresh environment, or use its image: versions do not fit together."]
        else:
            why = "The reason stands in the lines above: a missing package, mixed versions of torch, or no GPU driver."
            advice = [
                "Read the first traceback above this line.",
                "Install vLLM into a fresh environment, or use its image.",
            ]
    elif fact.id == "err_arch_none":
        gguf = fact.values.get("architecture")
        title = "The model's config.json names no architecture."
        why = "vLLM takes its class from the list `architectures`; a part of a model, an adapter or a folder has none."
        advice = [
            "Give the folder or repository of the whole model; for an adapter its base model with --enable-lora.",
            "Compare config.json with that of the original model, and add its `architectures`.",
        ]
        if gguf:
            title = f"The installed transformers cannot read GGUF files of the architecture {gguf}."
            why = "vLLM reads the config of a GGUF file through transformers, which knows a list of architectures."
            advice = ["Serve the original model or another quantisation of it, not the GGUF file.", newer]
    else:
        title = f"{version} has no model class for {names or 'this architecture'}."
        why = "vLLM looked for a class of its own and for one of transformers that it can use."
        advice = [newer]
        if case.since("0.8.0") is not False:
            advice.append("--model-impl transformers (if transformers supports the architecture)")
    yield RULE.found(title, why, evidence=(shown(fact),), advice=advice)


def _behind(case: Case) -> Fact | None:
    """The class that could not be imported, where the log shows why: that is then the error."""
    error, failed = case.reading.error, case.reading.facts.first("err_arch_inspect")
    return failed if error is not None and failed is not None and error.id in WEAK else None
