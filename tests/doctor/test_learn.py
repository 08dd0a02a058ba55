"""What a log teaches: its sizes under its key, or why there is nothing."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest
from tests.doctor.logs import CUT, REFUSED, SERVING

import kvroom
from kvroom.doctor.learn import lesson
from kvroom.errors import UsageError
from kvroom.learned.measurement import Measurement
from kvroom.learned.store import Store
from kvroom.units import GIB

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def taught(log: str, **said: str) -> Measurement | str:
    return lesson(kvroom.diagnose(log, offline=True, **{"gpu": "RTX 4090", **said}), NOW)


@pytest.mark.parametrize("log", [SERVING, REFUSED])
def test_a_start_that_came_up_or_reached_the_check_is_kept(log: str) -> None:
    kept = taught(log)
    assert isinstance(kept, Measurement)
    assert (kept.gpu, kept.gpus, str(kept.release)) == ("NVIDIA GeForce RTX 4090", 1, "0.11.0")
    assert (kept.model, kept.backend) == ("meta-llama/Llama-3.1-8B-Instruct", "FLASH_ATTN")
    assert kept.sizes["weights"] == round(14.9888 * GIB)
    assert kept.sizes["available"] // GIB == 3
    assert kept.words[:2] == ("--gpu-memory-utilization", "0.85")
    assert kept.learned == "2026-01-02T03:04:05+00:00"


def test_what_there_is_nothing_to_learn_from_says_why() -> None:
    assert "before its memory is measured" in str(taught(CUT))
    assert "--gpu" in str(lesson(kvroom.diagnose(SERVING, offline=True), NOW))
    no_release = "\n".join(line for line in SERVING.splitlines() if "0.11.0" not in line)
    assert "--vllm" in str(taught(no_release, model="meta-llama/Llama-3.1-8B-Instruct"))


def test_what_the_log_resolved_goes_before_the_rules() -> None:
    kept = taught(SERVING.replace("max_num_batched_tokens=2048", "max_num_batched_tokens=4096"))
    assert isinstance(kept, Measurement)
    assert kept.words[kept.words.index("--max-num-batched-tokens") + 1] == "4096"


def test_nothing_private_is_kept() -> None:
    log = SERVING.replace("meta-llama/Llama-3.1-8B-Instruct", "/home/alice/secret-project/Llama-3.1-8B-Instruct")
    log = log.replace("'max_model_len'", "'api_key': 'sk-verysecret1234', 'host': '10.1.2.3', 'max_model_len'")
    log = "\n".join(f"node17.corp.internal vllm[7]: {line}" for line in log.splitlines())
    kept = taught(log)
    assert isinstance(kept, Measurement)
    text = json.dumps(kept.data())
    assert kept.model == "Llama-3.1-8B-Instruct"
    for private in ("alice", "secret", "10.1", "node17", "/"):
        assert private not in text


def test_learning_from_python_changes_the_next_plan(store_file: Path) -> None:
    def plan() -> kvroom.Plan:
        return kvroom.plan(
            "meta-llama/Llama-3.1-8B-Instruct", gpu="RTX 4090", vllm="0.11.0", max_model_len=8192, offline=True
        )

    before = plan()
    kept = kvroom.learn(SERVING, gpu="RTX 4090", offline=True)
    after = plan()
    assert Store(store_file).every() == [kept]
    assert any(kept.id in note for note in after.notes)
    ledgers = [each.prediction.ledger for each in (before, after)]
    assert ledgers[0] is not None
    assert ledgers[1] is not None
    assert ledgers[0].available.expected != ledgers[1].available.expected
    with pytest.raises(UsageError, match="nothing to learn"):
        kvroom.learn(CUT, gpu="RTX 4090", offline=True)


def test_what_people_say_in_a_ticket_is_no_measurement() -> None:
    said = taught(f"{CUT}only 3.31 GiB for KV\n")
    assert said == "the log prints no size of a part."


def test_a_build_without_a_number_and_a_capture_that_took_less_than_nothing() -> None:
    assert "--vllm" in str(taught(SERVING.replace("0.11.0", "0.1.dev9+g1234567")))
    kept = taught(SERVING.replace("took 0.55 GiB", "took -0.03 GiB"))
    assert isinstance(kept, Measurement)
    assert "graphs_taken" not in kept.sizes
