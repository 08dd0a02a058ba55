"""KVR247: a quantisation that the card or the release does not take, or that contradicts the checkpoint."""

from __future__ import annotations

import re
from collections.abc import Iterator
from difflib import get_close_matches
from typing import TYPE_CHECKING

from kvroom.findings.case import shown
from kvroom.findings.finding import Finding, Rule, Severity, explanation
from kvroom.findings.refusals.common import capability, cause, short
from kvroom.vllm.rules import NEWEST, rules_for

if TYPE_CHECKING:
    from kvroom.findings.case import Case
    from kvroom.logs.facts import Fact

RULE = Rule(
    "KVR247",
    "quantization-refused",
    Severity.ERROR,
    "The quantisation does not run on this card or in this release, or the flag contradicts the checkpoint.",
    explanation(
        what="""
            Reads the refusals of a quantisation method: the card is too old for it or for the scheme of the
            checkpoint, the name is unknown, `--quantization` says something else than config.json, or the
            method is deprecated.
            """,
        why="""
            Kernels exist from some compute capability on: FP8 arithmetic from 8.9, Marlin from 8.0 (7.5 in
            newer releases).
            The method is written in the checkpoint; the flag can only repeat it, choose another kernel for it,
            or quantise an unquantised model while it loads.
            """,
        example="`--quantization awq` for a GPTQ checkpoint.",
        cure="""
            Drop `--quantization`: vLLM reads the method from config.json and takes the fastest kernel.
            On an old card take a checkpoint in a method that it runs.
            """,
        since="""
            All releases; `--allow-deprecated-quantization` since 0.14, `fp8_per_tensor` in place of `fp8` for
            unquantised checkpoints since 0.31.
            """,
        references="""
            `vllm/config/model.py: ModelConfig._verify_quantization`,
            `vllm/config/vllm.py: VllmConfig._get_quantization_config`
            """,
    ),
)
_IDS = ("err_quant_gpu", "err_quant_scheme", "err_quant_mismatch", "err_quant_unknown", "err_quant_online")
_NUMBERS = re.compile(r"(?:Min|Required) capability: (\d{2,3})\D{1,40}Current capability: (\d{2,3})")
_NAMED = ("awq", "gptq", "awq_marlin", "gptq_marlin", "compressed-tensors", "bitsandbytes", "fp8")


def find(case: Case) -> Iterator[Finding]:
    """The finding with the method and what it needs."""
    fact = cause(case, *_IDS)
    if fact is not None:
        kind = {"err_quant_mismatch": _mismatch, "err_quant_unknown": _unknown, "err_quant_online": _online}
        yield kind.get(fact.id, _card)(case, fact)
    yield from _deprecated(case)
    compiler = cause(case, "err_fp8_triton")
    method = str(case.setting("quantization") or "")
    if compiler is not None and method and not str(case.setting("kv_cache_dtype") or "auto").startswith("fp8"):
        yield RULE.found(
            "A kernel for FP8 weights does not compile for this card, which has no native FP8.",
            "FP8 (e4m3) arithmetic needs compute capability 8.9.",
            evidence=(shown(compiler),),
            advice=("Take a checkpoint in int4 or int8 (AWQ, GPTQ, W8A8 int8).",),
        )


def _card(case: Case, fact: Fact) -> Finding:
    found = _NUMBERS.search(fact.text.replace("'", ""))
    least = fact.whole("least") or (int(found[1]) if found else None)
    have = fact.whole("capability") or (int(found[2]) if found else None)
    what = fact.values.get("method") or "The checkpoint's quantisation scheme"
    exact = "exactly " if "Required capability" in fact.text else ""
    title = f"{what} does not run on this card."
    if least and have:
        title = f"{what} needs compute capability {exact}{capability(least)}; this card has {capability(have)}."
    advice = ["Take the model in another quantisation, or a newer card."]
    if have:
        same = {what, "compressed-tensors" if fact.id == "err_quant_scheme" else what}
        table = rules_for(case.release or NEWEST)["quantization_min_capability"]
        runs = [name for name in _NAMED if table.get(name) is not None and table[name] <= have and name not in same]
        if runs:
            advice = [f"Take the model in a quantisation that runs on {capability(have)}: {', '.join(runs)}."]
    return RULE.found(title, "vLLM has no kernel of it for older cards.", evidence=(shown(fact),), advice=advice)


def _mismatch(case: Case, fact: Fact) -> Finding:  # noqa: ARG001
    stored, asked = fact.values["config_method"], fact.values["arg_method"]
    return RULE.found(
        f"The checkpoint is quantised as {stored}, and --quantization says {asked}.",
        "The flag cannot turn one quantisation into another; vLLM reads the method from config.json by itself.",
        evidence=(shown(fact),),
        advice=("Drop --quantization.", f"--quantization {stored}"),
    )


def _unknown(case: Case, fact: Fact) -> Finding:  # noqa: ARG001
    method = fact.values["method"]
    listed = re.findall(r"'([\w-]{2,40})'", fact.text.partition("one of")[2])
    near = get_close_matches(method, listed, n=1, cutoff=0.6)
    advice = [f"--quantization {near[0]}"] if near else []
    return RULE.found(
        f"This release of vLLM has no quantisation method {short(method)}.",
        "The name is misspelt, or the checkpoint uses a method that came later or was removed.",
        evidence=(shown(fact),),
        advice=(*advice, "Take a newer vLLM, or the model in another quantisation."),
    )


def _online(case: Case, fact: Fact) -> Finding:  # noqa: ARG001
    return RULE.found(
        "--quantization fp8 no longer quantises an unquantised checkpoint.",
        "Since vLLM 0.31 quantising while loading has names of its own.",
        evidence=(shown(fact),),
        advice=("--quantization fp8_per_tensor", "Take a checkpoint that is already in FP8: it also loads faster."),
    )


def _deprecated(case: Case) -> Iterator[Finding]:
    fact = case.reading.facts.first("err_quant_deprecated")
    if fact is None:
        return
    error = case.reading.error
    raised = error is not None and ("To bypass" in fact.text or error.line == fact.line)
    method = fact.values["method"]
    named = re.search(r"', '([\w-]{2,40})'\)", fact.text)
    name = (
        named[1] if named else method if "%" not in method else str(case.setting("quantization") or "of the checkpoint")
    )
    other = "Take the model in another quantisation before the method is removed."
    yield RULE.found(
        f"The quantisation method {name} is deprecated" + (", and vLLM refuses it." if raised else "."),
        "A later release will not load this checkpoint.",
        evidence=(shown(fact),),
        advice=("--allow-deprecated-quantization", other) if raised else (other,),
        severity=None if raised else Severity.WARNING,
    )
