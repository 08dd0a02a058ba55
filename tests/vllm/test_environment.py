"""Environment variables by release."""

from __future__ import annotations

import pytest

from kvroom.vllm.environment import _data, earlier, instead, variables
from kvroom.vllm.flags import lifetime
from kvroom.vllm.releases import parse_release


@pytest.mark.parametrize(
    ("name", "release", "gone", "missing"),
    [
        ("VLLM_ATTENTION_BACKEND", "0.14.1", False, False),
        ("VLLM_ATTENTION_BACKEND", "0.15.0", True, False),
        ("VLLM_USE_V1", "0.10.2", False, False),
        ("VLLM_USE_V1", "0.11.0", True, False),
        ("VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS", "0.17.1", False, True),
        ("VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS", "0.18.0", False, False),
        ("VLLM_LOGGING_LEVEL", "0.33.0", False, False),
    ],
)
def test_a_release_reads_a_variable_or_not(name: str, release: str, gone: bool, missing: bool) -> None:
    variable = variables()[name]
    assert variable.gone(parse_release(release)) is gone
    assert variable.missing(parse_release(release)) is missing


def test_a_variable_appears_before_it_goes() -> None:
    assert len(variables()) > 400
    for variable in variables().values():
        if variable.absent_until is not None and variable.last is not None:
            assert variable.absent_until < variable.last


def test_replacements_are_for_variables_and_flags_that_exist() -> None:
    for name in _data()["instead"]:
        assert name in variables() or lifetime(name) is not None
    assert all(lifetime(name) is not None for name in _data()["earlier"])


def test_a_replacement_is_a_sentence_or_nothing() -> None:
    assert instead("VLLM_ATTENTION_BACKEND") == "Use --attention-backend."
    assert earlier("--attention-backend") == "Set VLLM_ATTENTION_BACKEND instead."
    assert instead("VLLM_LOGGING_LEVEL") is None
    assert earlier("--model") is None
