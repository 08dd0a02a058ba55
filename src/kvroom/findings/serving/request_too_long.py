"""KVR301: a request asks for more tokens than the context has."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kvroom.findings.case import shown
from kvroom.findings.finding import Finding, Rule, Severity, explanation

if TYPE_CHECKING:
    from kvroom.findings.case import Case
    from kvroom.logs.facts import Fact

RULE = Rule(
    "KVR301",
    "request-too-long",
    Severity.WARNING,
    "A request asked for more tokens than max_model_len allows, and was refused; the server is fine.",
    explanation(
        what="""
            Recognises every wording with which vLLM refuses a request whose prompt, or prompt and completion
            together, exceed `max_model_len`, and `max_tokens must be at least 1`.
            """,
        why="""
            The client gets HTTP 400 and the server goes on.
            Releases to 0.10 log each refusal as an error with a traceback, which looks like a crash and is none.
            A negative `max_tokens` is the same mistake made by the client: it subtracts the prompt from a context
            that the prompt already fills.
            """,
        example="""
            112,946 tokens of messages and `max_tokens` 10,000 are 122,946 tokens; with `--max-model-len 16384`
            the request is refused whatever `max_tokens` is.
            """,
        cure="""
            Shorten the prompt or lower `max_tokens`, so that the sum stays within the context.
            Raise `--max-model-len` only where the model's own limit and the KV pool have room for it.
            """,
        since="All releases; the wording changed in 0.10.1, 0.18 and 0.32.",
        references="""
            `vllm/renderers/params.py`, earlier `vllm/entrypoints/openai/serving_engine.py: _validate_input`
            """,
    ),
)
_REFUSED = ("too_long_total", "too_long_input", "too_long_output", "too_long_prompt", "too_long_input_length")
_LIMIT = re.compile(r"maximum context length (?:is |\()(\d+)|maximum model length of (\d+)")
_PROMPT = re.compile(
    r"(\d+) in the messages|(\d+) tokens in the (?:messages|input)|prompt contains (?:at least )?(\d+) input tokens"
    r"|request has (\d+) input tokens|prompt \(length (\d+)\)|Input length \((\d+)\)"
)
_OUTPUT = re.compile(r"(\d+) in the completion|requested (\d+) output tokens|is too large: (\d+)")


@dataclass(frozen=True, slots=True)
class Asked:
    """What a refused request asked for."""

    limit: int | None
    prompt: int | None
    output: int | None
    total: int | None


def find(case: Case) -> Iterator[Finding]:
    """The finding with the largest of the refused requests."""
    facts = case.reading.facts
    refused = {fact.line: fact for fact in facts.all(*_REFUSED)}
    if refused:
        requests = [(_asked(fact), fact) for fact in refused.values()]
        requests.sort(key=lambda request: request[0].total or 0, reverse=True)
        yield _too_long(*requests[0], len({request for request, _ in requests}))
        return
    negative = facts.first("too_few_tokens")
    if negative is not None:
        got = negative.values["got"]
        yield RULE.found(
            f"A request set max_tokens to {got}; it must be at least 1.",
            "A client that computes max_tokens as context less prompt gets this where the prompt fills the context."
            " The request was refused; the server is fine.",
            evidence=(shown(negative),),
            advice=("Shorten the prompt, or leave max_tokens out: vLLM then takes what is left.",),
        )


def _too_long(request: Asked, fact: Fact, count: int) -> Finding:
    limit, prompt, output, total = request.limit, request.prompt, request.output, request.total
    parts = f" ({prompt:,} of prompt, {output:,} to generate)" if prompt and output else ""
    amount = f"{total:,} tokens{parts}" if total else "more tokens"
    room = f"the context is {limit:,}" if limit else "the context has fewer"
    others = f" {count} different sizes were refused; this is the largest." if count > 1 else ""
    advice = []
    if limit and prompt and prompt < limit:
        advice.append(f"max_tokens at most {limit - prompt} for this prompt.")
    elif limit:
        advice.append(f"Shorten the prompt to fewer than {limit:,} tokens.")
    if total:
        advice.append(f"--max-model-len {total} (if the model and the KV cache have room for that)")
    return RULE.found(
        f"A request asked for {amount}; {room}.",
        f"vLLM refused it with HTTP 400, with or without a traceback; the server is fine.{others}",
        evidence=(shown(fact),),
        advice=advice,
    )


def _asked(fact: Fact) -> Asked:
    limit, prompt, output = (_first(pattern, fact.text) for pattern in (_LIMIT, _PROMPT, _OUTPUT))
    limit = limit or fact.whole("max_model_len")
    total = fact.whole("total") if fact.id == "too_long_total" else None
    if prompt is not None:
        total = max(total or 0, prompt + (output or 0))
    return Asked(limit, prompt, output, total)


def _first(pattern: re.Pattern[str], text: str) -> int | None:
    found = pattern.search(text)
    return next((int(group) for group in found.groups() if group), None) if found else None
