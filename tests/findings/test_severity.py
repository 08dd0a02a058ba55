"""How grave a finding is where that depends on the release or on what else is known."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kvroom.findings.finding import Severity
from kvroom.findings.launch import findings_of
from kvroom.findings.settings import (
    flag_of_another_release,
    idle_gpus,
    one_at_a_time,
    state_blocks,
    unknown_flag,
    utilization_above_free,
    yarn,
)
from kvroom.ledger.predict import Prediction
from kvroom.ledger.verdict import Status
from kvroom.models.shape import Rope

Launch = Callable[..., Prediction]


@pytest.mark.parametrize(
    ("release", "severity", "words"),
    [
        ("0.17.0", Severity.WARNING, "may address states outside the pool"),
        ("0.19.0", Severity.WARNING, "larger batches run without a CUDA graph"),
        ("0.20.0", Severity.ERROR, "refuses to start"),
    ],
)
def test_too_few_state_blocks_grow_graver(launch: Launch, release: str, severity: Severity, words: str) -> None:
    (finding,) = state_blocks.find(launch(states=3, release=release, pool={"num_blocks": 100}))
    assert finding.severity is severity
    assert words in finding.title
    assert finding.advice == ("--max-num-seqs 100",)


@pytest.mark.parametrize(
    ("release", "free", "util", "severity"),
    [
        ("0.28.0", 20.0, 0.9, Severity.ERROR),
        ("0.8.5", 20.0, 0.9, Severity.WARNING),
        ("0.28.0", None, 0.99, Severity.WARNING),
    ],
)
def test_asking_for_more_than_is_free_is_an_error_only_where_it_is_checked_and_known(
    launch: Launch, release: str, free: float | None, util: float, severity: Severity
) -> None:
    prediction = launch(f"--gpu-memory-utilization {util}", release=release, free_gib=free)
    (finding,) = utilization_above_free.find(prediction)
    assert finding.severity is severity


def test_the_share_to_ask_for_is_one_that_is_free(launch: Launch) -> None:
    (finding,) = utilization_above_free.find(launch(free_gib=20.5))
    assert finding.advice[0] == "--gpu-memory-utilization 0.85"


def test_yarn_without_a_longer_length_asked_for_is_a_warning(launch: Launch) -> None:
    (finding,) = yarn.find(launch(release="0.30.0", shape={"rope": Rope("yarn", 4.0, 32768)}))
    assert finding.severity is Severity.WARNING


def test_idle_gpus_matter_more_where_the_launch_fails(launch: Launch) -> None:
    (finding,) = idle_gpus.find(launch(count=4, status=Status.FAILS))
    assert finding.severity is Severity.WARNING
    assert finding.advice == ("--tensor-parallel-size 4",)


def test_a_pool_for_less_than_one_request_is_a_warning(launch: Launch) -> None:
    (finding,) = one_at_a_time.find(launch(pool={"max_concurrency": 0.8}))
    assert finding.severity is Severity.WARNING


def test_each_unknown_flag_has_its_own_finding(launch: Launch) -> None:
    prediction = launch("--swap-space 4 --use-v2-block-manager --max-modle-len 3 --no-such-thing-at-all=7")
    removed = [finding.evidence[0].text for finding in flag_of_another_release.find(prediction)]
    assert removed == ["--swap-space", "--use-v2-block-manager"]
    unknown = [finding.title for finding in unknown_flag.find(prediction)]
    assert len(unknown) == 2
    assert unknown[1] == "No release of vLLM has --no-such-thing-at-all."


def test_findings_come_gravest_first(launch: Launch) -> None:
    found = findings_of(
        launch("--swap-space 4 --cpu-offload-gb 2 --kv-cache-memory-bytes 2G --gpu-memory-utilization 0.5")
    )
    assert [finding.code for finding in found] == ["KVR113", "KVR101", "KVR106"]


def test_a_plain_launch_has_no_findings(launch: Launch) -> None:
    assert findings_of(launch()) == ()
