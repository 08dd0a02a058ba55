"""KVR221: the sampler's trial run decides the activation peak."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kvroom.findings.case import shown
from kvroom.findings.contributors.common import argument, multimodal, overflow, serves_text, shortage, utilization
from kvroom.findings.finding import Finding, Rule, Severity, explanation
from kvroom.findings.values import whole_number
from kvroom.units import GIB, show_bytes

if TYPE_CHECKING:
    from kvroom.findings.case import Case

RULE = Rule(
    "KVR221",
    "sampler-peak",
    Severity.WARNING,
    "vLLM tries out sampling for max_num_seqs requests at once, and reserves what that takes.",
    explanation(
        what="""
            Reports a launch that ran short of memory while the trial run of the sampler is what peaks, or
            that runs the first V1 releases, where it usually was.
            """,
        why="""
            The profile run samples for `max_num_seqs` dummy requests, each with a row of logits over the whole
            vocabulary in float32, and several copies of them while it sorts.
            All of that is taken from the KV cache, whether or not so many requests ever come.
            The need follows `max_num_seqs` and the vocabulary; neither context length nor the size of the
            model changes it.
            """,
        example="""
            1,024 requests x 151,936 entries are 0.58 GiB a copy; a sampler that sorts holds 4 to 10 of them.
            A 32B model on two 24 GB cards did not start with the default and did with `--max-num-seqs 8`.
            """,
        cure="`--max-num-seqs` at what is really served at once; each halving halves the peak.",
        since="""
            V1, from 0.8.0. Since 0.8.5 at the latest only cards of 70 GiB and more default to 1,024 requests,
            others to 256. The V0 engine samples for 256.
            """,
        references="`vllm/v1/worker/gpu_model_runner.py: profile_run, _dummy_sampler_run`",
    ),
)
_LEAST = GIB // 2


def find(case: Case) -> Iterator[Finding]:
    """The finding where memory ran short and the sampler is known, or in those releases sure, to take its part."""
    lack = shortage(case)
    fact = lack.fact if lack else overflow(case, "profile", "sampler_warmup")
    if fact is None or not serves_text(case):
        return
    prediction = case.prediction
    ledger = prediction.ledger if prediction is not None else None
    peaks = ledger is not None and ledger.activation.cause == "sampler"
    sampler = case.reading.facts.first("err_sampler")
    if ledger is not None and not peaks and sampler is None:
        return
    if not peaks and not _early(case, fact.id, lack is not None and lack.nothing):
        return
    taken = case.reading.size("activation")
    if taken is None and ledger is not None and peaks:
        taken = ledger.activation.expected
    if taken is not None and (taken < _LEAST or (lack and lack.missing and taken * 10 < lack.missing)):
        return
    rows = _rows(case)
    if rows is not None and rows <= 16:
        return
    late = lack is None and case.reading.stage == "sampler_warmup"
    vocabulary = prediction.setup.shape.vocab_size if prediction is not None else 0
    what = f"{rows:,} requests" if rows else "all of max_num_seqs (up to 1,024 unless given)"
    end = "and that does not fit beside the KV cache" if late else "and what that takes is missing from the KV cache"
    basis = "" if case.reading.size("activation") is not None else " as predicted"
    size = f" Peak of the profile run{basis}: {show_bytes(taken)}." if taken is not None else ""
    copy = (
        f" A copy of the logits is {rows:,} x {vocabulary:,} x 4 B = {show_bytes(rows * vocabulary * 4)}."
        if rows and vocabulary
        else ""
    )
    yield RULE.found(
        f"The profile run samples for {what} at once, {end}.",
        f"Each of them holds logits over the whole vocabulary in float32, in several copies.{copy}{size}",
        evidence=dict.fromkeys((shown(fact), *((shown(sampler),) if sampler else ()))),
        advice=(f"--max-num-seqs {_fewer(rows)}",),
    )


def _early(case: Case, error: str, nothing: bool) -> bool:
    """Whether a V1 release sampled so expensively that the error is hard to explain without it."""
    if case.reading.facts.first("err_sampler"):
        return True
    share = utilization(case)
    full = share is None or share >= 0.6
    default = whole_number(argument(case, "max_num_seqs")) is None
    old = any("determine_num_available_blocks" in fact.text for fact in case.reading.facts.all("deadlock_warning"))
    v1 = case.reading.engine != "V0" and not old and case.variable("VLLM_USE_V1") != "0"
    full = full and not multimodal(case)
    return v1 and default and full and case.between("0.8.0", "0.9.0") and (nothing or error in {"oom", "oom_old"})


def _rows(case: Case) -> int | None:
    fact = case.reading.facts.first("err_sampler")
    if fact is not None:
        return fact.whole("requests")
    rows = whole_number(argument(case, "max_num_seqs"))
    return rows if rows is not None else whole_number(case.setting("max_num_seqs"))


def _fewer(rows: int | None) -> int:
    """A quarter of ``rows``, as a power of two.

    >>> _fewer(1024), _fewer(256), _fewer(None)
    (256, 64, 64)
    """
    return 64 if rows is None else max(1 << max((rows // 4).bit_length() - 1, 0), 1)
