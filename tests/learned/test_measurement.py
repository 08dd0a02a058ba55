"""A measurement as it is kept and carried: checked, cleaned, and known by what it says."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.learned.makers import plain

from kvroom.errors import UsageError
from kvroom.learned.exchange import imported
from kvroom.learned.measurement import cleaned, measurement_of
from kvroom.report.learned import learned_data


def test_it_survives_json() -> None:
    kept = replace(plain(5), env={"VLLM_USE_V1": "1"}, backend="FLASH_ATTN")
    assert measurement_of(json.loads(json.dumps(kept.data()))) == kept


def test_its_id_is_what_it_says_and_not_when() -> None:
    assert plain(1).id == replace(plain(1), learned="2030-01-01T00:00:00+00:00").id
    assert plain(1).id != plain(2).id != replace(plain(2), gpus=2).id


def test_texts_are_cleaned_of_people_places_and_secrets() -> None:
    data = {**plain(1).data(), "model": "hf_" + "a1B2c3D4" * 5, "gpu": "NVIDIA L4 at 192.168.7.9"}
    kept = cleaned(measurement_of(data))
    assert "192.168" not in kept.gpu
    assert "a1B2c3D4" not in kept.model


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"gpu": None}, "gpu is no text"),
        ({"gpus": 0}, "gpus is no whole number"),
        ({"gpus": True}, "gpus is no whole number"),
        ({"vllm_version": "latest"}, "not a vLLM version"),
        ({"flags": "--max-num-seqs 64"}, "flags is no list"),
        ({"flags": ["x" * 401]}, "flags is no text"),
        ({"env": []}, None),
        ({"env": ["x"]}, "env no object"),
        ({"learned": "yesterday"}, "learned is no moment"),
        ({"learned": "0001-01-01T00:00:00+23:00"}, "learned is no moment"),
        ({"sizes": {}}, "no sizes"),
        ({"sizes": {"weights": -1}}, "weights is no whole number"),
        ({"sizes": {"weights": 1.5}}, "weights is no whole number"),
        ({"sizes": {"lunch": 1}}, "no size is called 'lunch'"),
    ],
)
def test_what_is_none_is_refused(change: dict[str, Any], said: str | None) -> None:
    data = {**plain(1).data(), **change}
    if said is None:
        assert measurement_of(data).env == {}
        return
    with pytest.raises(UsageError, match=said):
        measurement_of(data)


def test_an_export_is_read_back() -> None:
    kept = [plain(number) for number in range(3)]
    assert imported(json.dumps(learned_data(kept)).encode(), "f") == kept


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(sorted(plain().data())), inner),
    max_leaves=8,
)


@given(JSON)
def test_whatever_is_imported_is_read_or_one_error(data: Any) -> None:
    for text in (data, {"schema": "kvroom/1", "kind": "learned", "measurements": [data]}):
        with suppress(UsageError):
            assert len(imported(json.dumps(text).encode(), "f")) <= 1


@pytest.mark.parametrize("text", [b"", b"\xff", b"[" * 100_000, b"{}"])
def test_what_is_no_export_is_one_error(text: bytes) -> None:
    with pytest.raises(UsageError, match=r"^f "):
        imported(text, "f")
