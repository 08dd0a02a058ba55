"""Values of options."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvroom.errors import UsageError
from kvroom.vllm.flags import Flag
from kvroom.vllm.values import human_int, json_mapping, json_value, read_value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("32k", 32_000),
        ("32K", 32_768),
        ("25.6k", 25_600),
        ("1m", 10**6),
        ("1M", 2**20),
        ("4g", 4 * 10**9),
        ("4G", 4 * 2**30),
        ("2T", 2**41),
        (" 100 ", 100),
        ("8192", 8192),
    ],
)
def test_suffixes(text: str, value: int) -> None:
    assert human_int(text) == value


@pytest.mark.parametrize("text", ["1.5K", "k", "32kb", "", "1e3", "12.5", "\uff19k", "1" * 5000, "0x10", "--1"])
def test_numbers_that_vllm_refuses(text: str) -> None:
    with pytest.raises(UsageError, match="Allowed"):
        human_int(text, "--max-model-len")


@given(st.integers(0, 10**12))
def test_a_plain_number_is_itself(value: int) -> None:
    assert human_int(str(value)) == value


@pytest.mark.parametrize("text", ["{", "{'a': 1}", "[1,", "nope", "[" * 100_000, "1" * 10_000, "{" * 1_000_001])
def test_broken_json_is_one_clear_error(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        json_value(text, "--x")
    assert "--x" in str(caught.value)
    assert len(str(caught.value)) < 500


def test_json_with_suffixed_numbers() -> None:
    assert json_mapping('{"n": 80m, "s": "80m"}', "--x", suffixed_numbers=True) == {
        "n": 80_000_000,
        "s": "80m",
    }
    with pytest.raises(UsageError):
        json_mapping('{"n": 80m}', "--x")
    with pytest.raises(UsageError, match="JSON object"):
        json_mapping("[1]", "--x")


@pytest.mark.parametrize(
    ("form", "texts", "value"),
    [
        ("int", ["7"], 7),
        ("int", ["None"], None),
        ("float", ["0.5"], 0.5),
        ("bool_text", ["True"], True),
        ("human_int_or_auto", ["auto"], -1),
        ("human_int_or_auto", ["-1"], -1),
        ("human_int_or_auto", ["1k"], 1000),
        ("ints", ["1", "2"], (1, 2)),
        ("strs", ["a", "b"], ("a", "b")),
        ("opt_str", [], True),
        ("json_or_str", ["auto"], "auto"),
        ("json_or_str", ['{"a": 1}'], {"a": 1}),
        ("str", [""], None),
    ],
)
def test_forms(form: str, texts: list[str], value: object) -> None:
    assert read_value(Flag("x", form, ("--x",)), "--x", texts) == value


@pytest.mark.parametrize(
    ("form", "texts"),
    [
        ("int", ["1.5"]),
        ("float", ["nan"]),
        ("float", ["inf"]),
        ("bool_text", ["yes"]),
        ("ints", ["a"]),
        ("strs", []),
    ],
)
def test_bad_values_of_each_form(form: str, texts: list[str]) -> None:
    with pytest.raises(UsageError, match="--x"):
        read_value(Flag("x", form, ("--x",)), "--x", texts)


def test_choices_are_named() -> None:
    flag = Flag("dtype", "str", ("--dtype",), choices=("auto", "half"))
    assert read_value(flag, "--dtype", ["half"]) == "half"
    with pytest.raises(UsageError, match="Allowed: auto, half"):
        read_value(flag, "--dtype", ["double"])
