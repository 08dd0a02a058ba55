"""A check of files as JSON, SARIF, annotations and text: each remark on its line, and no secret in any."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from rich.console import Console

from kvroom.launches.files import found_in
from kvroom.launches.launch import Unanswered, Unread
from kvroom.plans.check import Item, check_found
from kvroom.plans.plan import Plan
from kvroom.plans.request import Request
from kvroom.report.annotations import workflow_commands
from kvroom.report.checked import item_data, print_items, tally
from kvroom.report.remarks import remarks_on
from kvroom.report.sarif import sarif_data

MANIFEST = """\
kind: Deployment
metadata: {name: d}
spec:
  template:
    spec:
      nodeSelector: {nvidia.com/gpu.product: NVIDIA-L4}
      containers:
      - name: vllm
        image: vllm/vllm-openai:v0.28.0
        args:
        - --model=Qwen/Qwen3-8B
        - -tp
        - "2"
        - --max-model-len=40960
        env:
        - name: HF_TOKEN
          value: hf_abcdefghijklmnopqrstuvwxyz012345
        resources: {limits: {nvidia.com/gpu: 1}}
"""
FAILS = MANIFEST.replace('        - -tp\n        - "2"\n', "")


def items(text: str = MANIFEST, **asked: Any) -> list[Item]:
    return check_found(found_in(text, "d.yaml"), {}, Request(offline=True, **asked))


def lines(text: str = MANIFEST) -> dict[str, int]:
    return {remark.rule: remark.line for remark in remarks_on(items(text))}


def test_a_remark_stands_on_the_line_of_its_flag_or_its_part_of_the_manifest() -> None:
    found = lines()
    assert found["launch-fails"] == 12
    assert found["KVR181"] == 18
    assert found["KVR184"] == 16
    assert lines(FAILS)["launch-fails"] == 1 + FAILS.split("\n").index("        - --max-model-len=40960")


def test_fewer_gpus_than_ranks_make_the_launch_fail() -> None:
    (plan,) = items()
    assert isinstance(plan, Plan)
    assert (plan.verdict.status, plan.verdict.stage, plan.verdict.message) == ("fails", "distributed_init", None)
    assert "need 2 GPUs" in (plan.verdict.left_out or "")


def test_sarif_has_what_version_2_1_0_asks_for() -> None:
    unread = Unread("my dir/x.yaml", 3, "It is no YAML.")
    data = sarif_data([*items(), Unanswered("./u.yaml", 1, "Pod p", "Why."), unread])
    assert data["version"] == "2.1.0"
    (run,) = data["runs"]
    rules = run["tool"]["driver"]["rules"]
    assert run["tool"]["driver"]["name"] == "kvroom"
    assert len(run["results"]) >= 5
    for result in run["results"]:
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"]
        assert result["level"] in {"error", "warning", "note"}
        assert result["message"]["text"]
        (place,) = result["locations"]
        assert place["physicalLocation"]["region"]["startLine"] >= 1
    addresses = {each["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] for each in run["results"]}
    assert addresses == {"d.yaml", "u.yaml", "my%20dir/x.yaml"}


def test_annotations_are_one_line_each_and_escaped() -> None:
    text = workflow_commands([*items(), Unread("a,b.yaml", 2, "50 %\nof it: bad")])
    rows = text.splitlines()
    assert all(row.startswith(("::error ", "::warning ", "::notice ")) for row in rows)
    assert rows[0].startswith("::error file=d.yaml,line=12,title=kvroom%3A fails at stage distributed_init::")
    assert rows[-1] == "::error file=a%2Cb.yaml,line=2,title=kvroom%3A not readable::50 %25%0Aof it: bad"


def test_no_form_holds_the_secret() -> None:
    found = items()
    out = Console(file=io.StringIO(), width=200)
    print_items(found, out, explain=True, short=False)
    shown = [workflow_commands(found), json.dumps(sarif_data(found)), json.dumps([item_data(each) for each in found])]
    for text in (*shown, out.file.getvalue()):  # type: ignore[attr-defined]
        assert "hf_abcdefg" not in text
        assert "HF_TOKEN" in text


def test_json_of_what_has_no_plan_keeps_the_keys_that_tools_read() -> None:
    plan = item_data(items()[0])
    open_ = item_data(Unanswered("u.yaml", 7, "Pod p", "Why.", "Do this."))
    assert set(plan) == set(open_)
    assert (open_["verdict"]["status"], open_["verdict"]["message"], open_["line"]) == ("unknown", "Why.", 7)
    unread = item_data(Unread("x.yaml", 3, "Broken.", "Mend it."))
    assert unread == {
        "schema": "kvroom/1",
        "kind": "unreadable",
        "problem": "Broken.",
        "cure": "Mend it.",
        "source": "x.yaml",
        "line": 3,
    }


@pytest.mark.parametrize(
    ("found", "says"),
    [
        ([], "0 launches"),
        ([Unanswered("u", 1, "p", "w")], "1 launch: 1 unknown"),
        ([Unread("u", 1, "p")], "0 launches: 1 not readable"),
    ],
)
def test_the_tally_counts_launches_and_files(found: list[Item], says: str) -> None:
    assert tally(found) == says


def test_short_text_has_one_line_a_launch_and_what_is_wrong() -> None:
    out = Console(file=io.StringIO(), width=200)
    found = [*items(), Unanswered("u.yaml", 1, "Pod p", "Why.", "Do this."), Unanswered("v.sh", 2, "", "No card.")]
    print_items(found, out, explain=False, short=True)
    text = out.file.getvalue()  # type: ignore[attr-defined]
    assert "FAILS  d.yaml:11  Qwen/Qwen3-8B on 2 x NVIDIA L4, vLLM 0.28.0 at stage distributed_init" in text
    assert "error KVR181 fewer-gpus-than-ranks" in text
    assert "UNKNOWN  u.yaml:1  Pod p: Why." in text
    assert "UNKNOWN  v.sh:2  No card." in text
    assert text.rstrip().endswith("3 launches: 1 fails, 2 unknown")
