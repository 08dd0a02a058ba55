"""KVR250: a tokenizer that cannot be built."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kvroom.findings.case import shown
from kvroom.findings.finding import Finding, Rule, Severity, explanation
from kvroom.findings.refusals.common import cause, model_of, short

if TYPE_CHECKING:
    from kvroom.findings.case import Case

RULE = Rule(
    "KVR250",
    "tokenizer-not-readable",
    Severity.ERROR,
    "The tokenizer's files are missing, or the installed transformers does not know its class.",
    explanation(
        what="Reads the errors of transformers about a tokenizer that cannot be found or built.",
        why="""
            vLLM needs tokenizer.json, or the files that an older tokenizer class reads (tokenizer.model,
            vocab.json with merges.txt), and the class that tokenizer_config.json names.
            Quantised and fine-tuned copies often leave them out.
            """,
        example="A folder with merged weights and config.json, but without tokenizer.json.",
        cure="""
            `--tokenizer` with the original model, or its tokenizer files copied into the folder.
            For an unknown class a newer transformers; for one that needs conversion `sentencepiece` or
            `tiktoken`.
            """,
        since="All releases.",
        references="`vllm/tokenizers`, earlier `vllm/transformers_utils/tokenizer.py: get_tokenizer`",
    ),
)


def find(case: Case) -> Iterator[Finding]:
    """The finding with what is missing."""
    fact = cause(case, "err_tokenizer", under=("err_hub_missing", "err_hub_offline"))
    if fact is None:
        return
    kind = fact.values.get("tokenizer")
    other = "The original model as --tokenizer: copies often leave the tokenizer out."
    if kind:
        title = f"The installed transformers has no tokenizer class {short(kind)}, which the model names."
        advice = ["Take the transformers release that the model card names.", other]
    elif "backend tokenizer" in fact.text:
        title = f"The tokenizer of {model_of(case)} needs to be converted, and that failed."
        advice = [
            "Install what reads the old format: pip install sentencepiece tiktoken protobuf",
            other,
        ]
    else:
        title = f"{model_of(case)} has no tokenizer that can be loaded."
        advice = [other, "Copy tokenizer.json and tokenizer_config.json of the original model into the folder."]
    yield RULE.found(
        title,
        "The weights are not at fault: only the files that turn text into tokens are.",
        evidence=(shown(fact),),
        advice=advice,
    )
