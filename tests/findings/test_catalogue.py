"""The catalogue: complete, in order, and found by code or name."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

import kvroom.findings
from kvroom.errors import UsageError
from kvroom.findings.catalogue import DEPLOYMENT, LAUNCH, all_rules, rule
from kvroom.findings.finding import HEADINGS, Rule
from kvroom.findings.log_catalogue import LOG

HOME = Path(kvroom.findings.__file__ or "").parent


def test_every_module_is_in_the_catalogue() -> None:
    modules = {
        importlib.import_module(".".join(("kvroom.findings", path.parent.name, path.stem)))
        for path in HOME.glob("*/*.py")
    }
    assert {module for module in modules if hasattr(module, "RULE")} == {*LAUNCH, *DEPLOYMENT, *LOG}


def test_codes_and_names_are_unique_and_in_order() -> None:
    codes = [item.code for item in all_rules()]
    assert codes == sorted(set(codes))
    assert len({item.name for item in all_rules()}) == len(codes)


@pytest.mark.parametrize("item", all_rules(), ids=lambda item: item.code)
def test_a_rule_is_written_as_agreed(item: Rule) -> None:
    assert re.fullmatch(r"KVR[123]\d\d", item.code)
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)+", item.name)
    assert item.summary.endswith(".")
    assert "\n" not in item.summary
    headings = re.findall(r"^## (.+)$", item.explanation, re.MULTILINE)
    assert tuple(headings) == HEADINGS
    parts = re.split(r"^## .+$", item.explanation, flags=re.MULTILINE)[1:]
    assert all(part.strip() for part in parts)


@pytest.mark.parametrize("text", ["KVR101", "kvr101", " KVR101 ", "kv-cache-bytes-replace-utilization"])
def test_a_rule_is_found_by_code_or_name(text: str) -> None:
    assert rule(text).code == "KVR101"


@pytest.mark.parametrize(
    ("text", "near"),
    [("KVR99", "KVR"), ("swap", "swap-space-does-nothing"), ("", "KVR101"), ("x" * 9999, "KVR101")],
)
def test_a_wrong_code_names_the_nearest(text: str, near: str) -> None:
    with pytest.raises(UsageError) as caught:
        rule(text)
    assert near in caught.value.cure
    assert len(str(caught.value)) < 400
