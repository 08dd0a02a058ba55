"""KVR248: the model cannot be read: from the hub, from a folder, or from its files."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kvroom.findings.case import shown
from kvroom.findings.finding import Finding, Rule, Severity, explanation
from kvroom.findings.refusals.common import cause
from kvroom.findings.refusals.hub_errors import gated, missing, offline, repository_name
from kvroom.findings.refusals.weight_files import broken, incomplete, no_weights, strange

if TYPE_CHECKING:
    from kvroom.findings.case import Case

RULE = Rule(
    "KVR248",
    "model-not-readable",
    Severity.ERROR,
    "The model's files cannot be found, fetched, or matched with the model's class.",
    explanation(
        what="""
            Reads the errors of the Hugging Face hub client (access, name, connection), of a path that is no
            model folder, and of weights that are missing or do not belong to the model's class.
            """,
        why="""
            `--model` is a folder if it exists, else the name of a repository on the hub.
            A folder that is not mounted into the container is therefore looked up on the hub, and the message
            is about a repository name.
            Without a token the hub answers 401 for gated, private and non-existing repositories alike.
            """,
        example="`vllm serve /models/qwen` in a container into which `/models` is not mounted.",
        cure="""
            Gated: accept the licence and pass `HF_TOKEN`. Folder: mount it, and look for its config.json.
            Offline: fill the cache first. Missing tensors: download again, or take a release that knows the
            checkpoint.
            """,
        since="All releases.",
        references="`vllm/transformers_utils/config.py: get_config`, `vllm/model_executor/model_loader`",
    ),
)
_IDS = (
    "err_hub_gated",
    "err_hub_missing",
    "err_hub_offline",
    "err_repo_name",
    "err_no_weights",
    "err_weights_missing",
    "err_weights_name",
    "err_weights_key",
    "err_weights_broken",
)


def find(case: Case) -> Iterator[Finding]:
    """The finding with what to do for this kind of it."""
    fact = cause(case, *_IDS)
    if fact is None:
        return
    kind = {
        "err_hub_gated": gated,
        "err_hub_missing": missing,
        "err_hub_offline": offline,
        "err_repo_name": repository_name,
        "err_no_weights": no_weights,
        "err_weights_missing": incomplete,
        "err_weights_name": strange,
        "err_weights_key": strange,
        "err_weights_broken": broken,
    }
    title, why, advice = kind[fact.id](case, fact)
    yield RULE.found(title, why, evidence=(shown(fact),), advice=advice)
