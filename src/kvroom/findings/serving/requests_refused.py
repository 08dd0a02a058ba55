"""KVR314: requests that were answered with an error."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kvroom.findings.case import shown
from kvroom.findings.finding import Evidence, Finding, Rule, Severity, explanation

if TYPE_CHECKING:
    from kvroom.findings.case import Case

RULE = Rule(
    "KVR314",
    "requests-refused",
    Severity.NOTE,
    "The access log shows requests that were answered with an error.",
    explanation(
        what="""
            Counts the answers with status 400 and above in the access log.
            """,
        why="""
            400 is a request that vLLM refuses (too long, a wrong parameter), 404 a wrong path or model name, 401
            a missing key, 422 a body that is no valid request; the server is fine with all of them.
            500 is an error inside of the server; 503 means that the engine is dead or the load was shed.
            Newer releases send the reason to the client and do not log it.
            """,
        example="""
            `"POST /v1/completions HTTP/1.1" 400 Bad Request`: the body of the answer says why.
            """,
        cure="""
            Read the answer's body, or send the request once more with `curl -i`.
            For 500 read the traceback in the log.
            """,
        since="All releases.",
        references="`vllm/entrypoints/serve/exception_handling`, uvicorn's access log",
    ),
)
_REASONS = {
    "refused_tools": (
        "Tools were asked for, and the server was started without a parser for them.",
        "Start with --enable-auto-tool-choice and the --tool-call-parser of the model.",
    ),
    "refused_items": (
        "A request has more images, videos or audio than one request may have.",
        "Raise --limit-mm-per-prompt (it takes memory for the profile run), or send fewer.",
    ),
    "refused_template": (
        "The model brings no chat template.",
        "Give one with --chat-template, or use /v1/completions.",
    ),
}
"""What the server logs of requests that it refuses, in words, and what to do."""
_MEANING = {
    400: "refused as they are: too long, or a parameter that is not allowed",
    401: "without a valid key",
    404: "a path or a model name that does not exist",
    422: "a body that is no valid request",
    500: "errors inside of the server",
    503: "the engine was dead, or the load was shed",
}


def find(case: Case) -> Iterator[Finding]:
    """The finding with the counts; a warning where the server itself failed."""
    counts = {status: count for status, count in sorted(case.reading.statuses.items()) if status >= 400}
    if not counts:
        return
    total = sum(counts.values())
    parts = ", ".join(f"{count:,} with {status}" for status, count in counts.items())
    meaning = "; ".join(f"{status}: {_MEANING[status]}" for status in counts if status in _MEANING)
    failed = counts.get(500, 0)
    trace = case.reading.facts.first("exception") if failed else None
    reasons = [fact for id_ in _REASONS if (fact := case.reading.facts.first(id_)) is not None]
    if reasons and not trace:
        yield RULE.found(
            f"{total:,} request{'s were' if total > 1 else ' was'} answered with an error: {parts}.",
            " ".join(_REASONS[fact.id][0] for fact in reasons),
            evidence=[shown(fact) for fact in reasons],
            advice=[_REASONS[fact.id][1] for fact in reasons],
        )
        return
    yield RULE.found(
        f"{total:,} request{'s were' if total > 1 else ' was'} answered with an error: {parts}.",
        f"{meaning}." if meaning else "",
        evidence=(shown(trace),) if trace else (Evidence(parts),),
        advice=("Read the traceback in the log.",) if trace else ("Read the body of the answer: it says why.",),
        severity=Severity.WARNING if trace else None,
    )
