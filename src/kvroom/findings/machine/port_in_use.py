"""KVR264: the port is taken."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from kvroom.findings.case import shown
from kvroom.findings.finding import Finding, Rule, Severity, explanation
from kvroom.findings.refusals.common import cause

if TYPE_CHECKING:
    from kvroom.findings.case import Case

RULE = Rule(
    "KVR264",
    "port-in-use",
    Severity.ERROR,
    "Another program listens on the port.",
    explanation(
        what="Reads the operating system's refusal to bind an address, and finds the port.",
        why="""
            Often it is an earlier vLLM that still runs, or whose worker processes survived; it then holds GPU
            memory as well.
            Since vLLM 0.6 the port is bound before the model loads, so that the failure comes at once.
            """,
        example="Two servers on one machine, both on the default port 8000.",
        cure="`--port` with a free one, or stop the other program.",
        since="All releases.",
        references="`vllm/entrypoints/openai/api_server.py: setup_server`",
    ),
)
_PORT = re.compile(r"(?:port[:=] ?|:|', )(\d{2,5})\b")
_DEFAULT = 8000


def find(case: Case) -> Iterator[Finding]:
    """The finding with the port."""
    fact = cause(case, "err_port")
    if fact is None:
        return
    inner = "server socket has failed" in fact.text or "EADDRINUSE" in fact.text
    said = _PORT.search(fact.text)
    port = int(said[1]) if said else None if inner else case.whole("port") or _DEFAULT
    look = f"ss -ltnp | grep :{port}" if port else "ss -ltnp"
    if inner:
        advice = ["Start again: vLLM looks for another port.", "Another VLLM_PORT."]
    else:
        advice = [f"--port {(port or _DEFAULT) + 1}"]
    yield RULE.found(
        f"Port {port} is already in use." if port else "A port is already in use.",
        "The ranks of one server meet on it." if inner else "An earlier server may still run and hold GPU memory too.",
        evidence=(shown(fact),),
        advice=(*advice, f"See who holds it ({look}) and stop that program."),
    )
