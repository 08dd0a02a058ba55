"""Each rule about the pod around a launch, on a pod that shows the problem and on pods that do not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import kvroom
from kvroom.findings.catalogue import DEPLOYMENT
from kvroom.findings.finding import Finding
from kvroom.findings.launch import findings_of
from kvroom.launches.launch import DEFAULT_SHARED_MEMORY, Pod
from kvroom.units import GIB

BASE = Pod(
    "Deployment d",
    "vllm",
    "vllm/vllm-openai:v0.28.0",
    gpus=2,
    lines={"container": 4, "gpus": 9, "image": 5, "probe": 12, "shared_memory": 15, "HF_TOKEN": 7},
)
CASES = (
    ("KVR181", {"gpus": 1}, "need 2 GPUs; Deployment d gets 1.", 9, ({}, {"gpus": 1, "nodes": 2}, {"gpus": None})),
    (
        "KVR182",
        {"shared_memory": DEFAULT_SHARED_MEMORY},
        "2 ranks share 64.0 MiB",
        15,
        ({}, {"shared_memory": 8 * GIB}, {"shared_memory": DEFAULT_SHARED_MEMORY, "gpus": 1, "nodes": 2}),
    ),
    (
        "KVR183",
        {"startup_seconds": 20},
        "The probes allow 20 s; a fast start with 7.",
        12,
        ({"startup_seconds": 60}, {}),
    ),
    ("KVR184", {"open_secrets": ("HF_TOKEN",)}, "HF_TOKEN is written out.", 7, ({},)),
    (
        "KVR185",
        {"image": "vllm/vllm-openai:latest"},
        "vllm/vllm-openai:latest may be any release; the rules here are those of 0.28.0.",
        5,
        ({}, {"image": "vllm/vllm-openai@sha256:0"}, {"image": "${IMAGE}/vllm"}, {"image": "redis"}),
    ),
)


@pytest.fixture(scope="module")
def plan() -> Any:
    return kvroom.plan(
        "Qwen/Qwen3-8B", gpu="2x RTX 4090", vllm="0.28.0", tensor_parallel_size=2, offline=True, learned=False
    )


def found(plan: Any, code: str, **pod: Any) -> list[Finding]:
    return [each for each in findings_of(plan.prediction, replace(BASE, **pod)) if each.code == code]


def test_every_rule_has_a_case() -> None:
    assert [case[0] for case in CASES] == [module.RULE.code for module in DEPLOYMENT]


@pytest.mark.parametrize(("code", "yes", "says", "line", "no"), CASES, ids=[case[0] for case in CASES])
def test_the_rule_is_found_with_its_line_and_only_there(
    plan: Any, code: str, yes: dict[str, Any], says: str, line: int, no: tuple[dict[str, Any], ...]
) -> None:
    (finding,) = found(plan, code, **yes)
    assert says in finding.title
    assert finding.evidence[0].line == line
    assert finding.advice
    for pod in no:
        assert not found(plan, code, **pod), pod


def test_without_a_pod_none_is_found(plan: Any) -> None:
    assert not [each for each in plan.findings if each.code.startswith("KVR18")]


@pytest.mark.parametrize(
    ("name", "cluster", "cure"),
    [
        ("HF_TOKEN", True, "Keep it elsewhere, by valueFrom: {secretKeyRef: ...}. Revoke this one."),
        ("--api-key", True, "Set VLLM_API_KEY in place of the flag, by valueFrom: {secretKeyRef: ...}."),
        ("--hf_token", False, "Set HF_TOKEN in place of the flag, by the bare name, - HF_TOKEN."),
        ("--ssl-keyfile-password", False, "Take it out of the command. Revoke this one."),
    ],
)
def test_the_cure_of_a_written_secret_is_where_it_belongs(plan: Any, name: str, cluster: bool, cure: str) -> None:
    (finding,) = found(plan, "KVR184", open_secrets=(name,), cluster=cluster)
    assert finding.advice[0].startswith(cure)
