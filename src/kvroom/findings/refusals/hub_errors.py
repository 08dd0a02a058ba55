"""What to say of a model that the hub, or the folder, does not give."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from kvroom.findings.refusals.common import model_of, short

if TYPE_CHECKING:
    from kvroom.findings.case import Case
    from kvroom.findings.refusals.weight_files import Parts
    from kvroom.logs.facts import Fact

_QUOTED = re.compile(r"(?:repo_name'|specified|with|folder): ?[`'\"]([^`'\"]{1,200})[`'\"]")
_FILE = re.compile(r"/resolve/[^/\s]{1,80}/([\w./-]{1,120})")
_GATED = "Its owner asks for a licence to be accepted, and the download needs a token of an account that did."


def gated(case: Case, fact: Fact) -> Parts:  # noqa: ARG001
    """A repository that the hub does not give out."""
    texts = " ".join(near.text for near in case.reading.facts.all("err_hub_gated", "err_hub_missing"))
    closed = re.search(r"gated|is restricted|awaiting a review", texts, re.IGNORECASE)
    licence = "Accept the licence on the model's page, with the account that the token belongs to."
    send_it = "Pass the token: HF_TOKEN=<token> (in Docker -e HF_TOKEN, in Kubernetes from a secret)."
    if closed:
        return f"The hub does not give out {model_of(case)}: it is gated.", _GATED, (licence, send_it)
    return (
        f"The hub refuses {model_of(case)}: no access, or no such repository.",
        "Without a valid token the hub answers 401 for gated, private and non-existing repositories alike.",
        ("Check the spelling of the name.", send_it, licence),
    )


def missing(case: Case, fact: Fact) -> Parts:
    """A repository, revision or file that the hub does not have."""
    model = short(fact.values.get("model", "")) or model_of(case)
    if _is_path(model):
        return _folder(model)
    file = _FILE.search(fact.text)
    if file and not file[1].endswith("config.json"):
        return (
            f"The repository {model} has no {file[1]}.",
            "The hub knows the repository, but not this file at this revision.",
            ("Check --revision and that the repository holds a model in this format.",),
        )
    return (
        f"The hub has no repository or revision {model}.",
        "It is no folder here either; private repositories also look like this without a token.",
        ("Check the spelling (owner/name) and --revision.", "If it is private: HF_TOKEN=<token>."),
    )


def offline(case: Case, fact: Fact) -> Parts:
    """The hub is out of reach."""
    model = model_of(case)
    forced = "outgoing traffic has been disabled" in " ".join(f.text for f in case.reading.facts.all(fact.id))
    advice = [
        f"Fill the cache while online: hf download {model}",
        "Mount the cache (~/.cache/huggingface) and set HF_HOME.",
    ]
    if forced:
        advice.insert(0, "Unset HF_HUB_OFFLINE (TRANSFORMERS_OFFLINE), if the machine may reach the hub.")
    else:
        advice.append("Check DNS, proxy (HTTPS_PROXY) and HF_ENDPOINT from inside the container.")
    why = "Offline mode is on" if forced else "The hub does not answer"
    return f"{model} is not in the local cache, and the hub is out of reach.", f"{why}.", tuple(advice)


def repository_name(case: Case, fact: Fact) -> Parts:
    """A name that is no repository and no folder."""
    found = _QUOTED.search(fact.text)
    name = short(found[1]) if found else model_of(case)
    if _is_path(name) or name.count("/") > 1 or name.startswith("<"):
        return _folder(name)
    return (
        f"{name} is neither a folder nor the name of a repository.",
        "A repository is written owner/name, with letters, digits, dots, dashes and underscores only.",
        ("Check the spelling, or give the full path of the folder.",),
    )


def _folder(path: str) -> Parts:
    return (
        f"There is no model folder {path} where vLLM runs, so it was taken for a repository's name.",
        "A path that does not exist is looked up on the hub.",
        (
            f"Check that {path} exists and holds config.json: ls {path}",
            "In a container mount it: docker run -v <folder>:<the path you give to vLLM>.",
        ),
    )


def _is_path(name: str) -> bool:
    return name.startswith(("/", "./", "../", "~", "\\")) or name[1:3] == ":\\"
