"""KVR253: a VLLM_ variable that this release does not read."""

from __future__ import annotations

import re
from collections.abc import Iterator
from difflib import get_close_matches
from typing import TYPE_CHECKING

from kvroom.findings.case import shown
from kvroom.findings.finding import Finding, Rule, Severity, explanation
from kvroom.vllm.environment import instead, variables

if TYPE_CHECKING:
    from kvroom.findings.case import Case

RULE = Rule(
    "KVR253",
    "environment-variable-unknown",
    Severity.NOTE,
    "vLLM saw environment variables with its prefix that it does not read.",
    explanation(
        what="Collects the warnings about unknown `VLLM_*` variables.",
        why="""
            vLLM ignores them, so a setting of another release or a misspelt one has no effect although the
            server starts.
            Kubernetes adds such variables for every service whose name begins with `vllm`
            (`VLLM_SERVICE_HOST`, `VLLM_SERVICE_PORT`); those are harmless.
            """,
        example="`VLLM_ATTENTION_BACKEND=FLASHINFER` on vLLM 0.15 or newer, which wants `--attention-backend`.",
        cure="""
            Use the flag or variable that the finding names, or remove the variable.
            In Kubernetes `enableServiceLinks: false` keeps the service variables away.
            """,
        since="The warning by release; kvroom knows the variables of 28 releases.",
        references="`vllm/envs.py`",
    ),
)
_KUBERNETES = re.compile(r"VLLM\w*_(SERVICE_HOST|SERVICE_PORT\w*|PORT_\d+_(TCP|UDP)\w*|PORT)$")
_CLOSE = 0.85
_MOST = 4
_READ = 20
"""Variables that are looked up; a log could hold any number."""


def find(case: Case) -> Iterator[Finding]:
    """One finding for all variables."""
    facts = {fact.values["name"]: fact for fact in reversed(case.reading.facts.all("env_unknown"))}
    names = sorted(facts, key=lambda name: facts[name].line)[:_READ]
    if not names:
        return
    known = variables()
    whys, advice = [], []
    for name in names:
        if _KUBERNETES.match(name):
            continue
        variable, cure = known.get(name), instead(name)
        if variable is not None and variable.last is not None:
            whys.append(f"{name} was last read by vLLM {variable.last}.")
        near = get_close_matches(name, list(known), n=1, cutoff=_CLOSE) if variable is None else []
        if near and case.release is not None and known[near[0]].gone(case.release):
            cure = instead(near[0])
        advice.append(cure or (f"Write {near[0]} in place of {name}." if near else f"Remove {name}."))
    if any(_KUBERNETES.match(name) for name in names):
        whys.append("Kubernetes sets some of them for a service whose name begins with vllm: harmless.")
        advice.append("enableServiceLinks: false in the pod's spec keeps them away.")
    yield RULE.found(
        f"vLLM does not read {', '.join(names[:_MOST])}{' and others' if len(names) > _MOST else ''}.",
        " ".join(whys[:_MOST]),
        evidence=[shown(facts[name]) for name in names[:_MOST]],
        advice=list(dict.fromkeys(advice))[:_MOST],
    )
