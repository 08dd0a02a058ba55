"""From a log to what to change: the whole way, on logs in the wording of real releases."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from tests.doctor.logs import CUT, REFUSED, SERVING

import kvroom
from kvroom.doctor.diagnosis import Diagnosis
from kvroom.errors import UsageError
from kvroom.ledger.verdict import Status
from kvroom.report.diagnosis_json import diagnosis_data
from kvroom.report.diagnosis_markdown import diagnosis_markdown
from kvroom.units import GIB

ENGINE_LOGS = Path(__file__).parent.parent / "data" / "logs"


def diagnosed(log: str, **said: object) -> Diagnosis:
    return kvroom.diagnose(log, offline=True, **{"gpu": "RTX 4090", **said})


def test_a_refused_start_is_explained_and_cured() -> None:
    seen = diagnosed(REFUSED)

    assert (seen.verdict.status, seen.verdict.stage) == (Status.FAILS, "kv_sizing")
    assert seen.reading.error is not None
    assert (seen.reading.error.id, seen.reading.error.line) == ("err_bytes", 15)
    assert seen.findings[0].code == "KVR203"
    assert seen.problem
    lengths = [offer for offer in seen.offers[:2] if offer.flags[:1] == ("--max-model-len",)]
    assert lengths
    assert int(lengths[0].flags[1]) <= 27104
    assert lengths[0].after is not None
    assert lengths[0].after.verdict.status is Status.FITS


def test_numbers_are_those_of_the_log() -> None:
    reading = diagnosed(REFUSED).reading

    assert (reading.version, reading.engine, reading.model) == ("0.11.0", "V1", "meta-llama/Llama-3.1-8B-Instruct")
    assert reading.attention_backend == "FLASH_ATTN"
    assert reading.size("weights") == round(14.9888 * GIB)
    assert reading.size("available") == round(3.31 * GIB)
    assert (reading.pool.needed_bytes, reading.pool.estimated_max_len) == (8 * GIB, 27104)
    assert reading.settings["gpu_memory_utilization"] == 0.85
    assert [step.stage for step in reading.timeline][:2] == ["config", "model_resolve"]


def test_remedies_are_priced_from_what_this_machine_measured() -> None:
    seen = diagnosed(REFUSED)

    assert seen.known.priced is not None
    ledger = seen.known.priced.prediction.ledger
    assert ledger is not None
    assert ledger.available.expected == round(3.31 * GIB)
    assert ledger.weights.expected == round(14.9888 * GIB)
    assert {each.entry for each in seen.held} == {"weights", "available"}


def test_a_serving_start_is_healthy() -> None:
    seen = diagnosed(SERVING)

    assert seen.verdict.status is Status.FITS
    assert not seen.problem
    assert seen.reading.pool.tokens == 27104


def test_a_log_that_just_ends_is_not_decided() -> None:
    assert diagnosed(CUT).verdict.status is Status.UNKNOWN


def test_without_a_card_the_log_alone_still_gives_the_cure() -> None:
    seen = kvroom.diagnose(REFUSED, offline=True)

    assert seen.known.priced is None
    assert any("--gpu" in note for note in seen.known.notes)
    assert any(offer.flags[:1] == ("--max-model-len",) for offer in seen.offers[:2])


def test_a_command_says_what_the_log_does_not() -> None:
    line = REFUSED.splitlines()[14]

    seen = kvroom.diagnose(
        line,
        command="vllm serve meta-llama/Llama-3.1-8B-Instruct --max-model-len 65536",
        gpu="RTX 4090",
        vllm="0.11.0",
        offline=True,
    )

    assert seen.reading.settings["max_model_len"] == 65536
    assert seen.known.priced is not None


@pytest.mark.parametrize(
    "command",
    [
        "vllm serve <MODEL_DIR>/Llama-3.1-8B-Instruct --port <PORT> --max-model-len 65536",
        "<recipe long> --max-model-len 65536",
        "CUDA_VISIBLE_DEVICES=0 vllm serve meta-llama/Llama-3.1-8B-Instruct --max-model-len 65536 ...",
        ["--model", "meta-llama/Llama-3.1-8B-Instruct", "--max-model-len", "65536"],
    ],
)
def test_commands_as_people_paste_them(command: str | list[str]) -> None:
    seen = kvroom.diagnose(
        REFUSED, command=command, model="meta-llama/Llama-3.1-8B-Instruct", gpu="RTX 4090", offline=True
    )

    assert seen.known.priced is not None, seen.known.notes
    assert seen.known.priced.prediction.setup.args.max_model_len == 65536


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "it is empty"),
        ("llama_model_load: loaded\n", "llama.cpp"),
        ("<!DOCTYPE html><p>hello", "web page"),
        ("nothing in particular\n" * 5, "no log of vLLM"),
    ],
)
def test_what_is_no_log_says_what_it_looks_like(text: str, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        kvroom.diagnose(text, offline=True)


def test_a_path_that_is_not_there_is_one_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no\.log cannot be read"):
        kvroom.diagnose(tmp_path / "no.log")


@pytest.mark.parametrize("log", [REFUSED, SERVING])
def test_the_json_keeps_its_contract(log: str) -> None:
    data = diagnosis_data(diagnosed(log))

    assert json.loads(json.dumps(data, allow_nan=False)) == data
    assert {"schema", "kind", "reading", "first_error", "findings", "remedies", "verdict", "command", "notes"} <= set(
        data
    )
    assert (data["schema"], data["kind"]) == ("kvroom/1", "diagnosis")
    reading = {"vllm_version", "engine", "model", "devices", "attention_backend", "stage", "ledger", "pool", "settings"}
    assert reading <= set(data["reading"])
    for entry in data["reading"]["ledger"]:
        assert entry["low"] <= entry["expected"] <= entry["high"]
    for remedy in data["remedies"]:
        assert {"flags", "why", "price", "verdict", "pool"} <= set(remedy)


def test_secrets_and_names_in_a_log_go_no_further() -> None:
    log = REFUSED.replace(
        "'gpu_memory", "'api_key': ['sk-verysecret123456'], 'hf_token': 'hf_abcdefghijklmnop', 'gpu_memory"
    )
    log = log.replace("/opt/vllm", "/home/somebody/vllm").replace("(8.00 GiB", "at 10.11.12.13 (8.00 GiB", 0)
    seen = diagnosed(log)

    everything = json.dumps(diagnosis_data(seen)) + diagnosis_markdown(seen, excerpt=True)

    for secret in ("verysecret", "hf_abcdefghijklmnop"):
        assert secret not in everything
    assert "somebody" not in diagnosis_markdown(seen, excerpt=True)
    assert "meta-llama/Llama-3.1-8B-Instruct" in everything
    assert "27104" in everything


def test_markup_of_others_stays_text() -> None:
    evil = "</details><script>alert(1)</script> [bold]x[/bold] ```\n\x1b]0;title\x07"
    log = REFUSED.replace("Try increasing", f"{evil.splitlines()[0]} Try increasing") + evil

    page = diagnosis_markdown(diagnosed(log), excerpt=True)

    outside = re.sub(r"(`{3,})text\n.*?\n\1", "", page, flags=re.DOTALL)
    assert "<script" not in outside
    assert outside.count("</details>") == 1
    assert "\x1b" not in page


@pytest.mark.parametrize(
    ("name", "stage", "code"),
    [
        ("kv-capacity-error", "kv_sizing", "KVR203"),
        ("fresh-0.28.0-capacity", "kv_sizing", "KVR203"),
        ("maxlen-over-derived", "config", "KVR241"),
        ("tp-not-divisible", "config", "KVR243"),
        ("missing-model", "model_resolve", "KVR248"),
        ("own-run-0.32.0-cpu-mem", "device_memory_check", "KVR204"),
    ],
)
def test_failures_of_a_real_engine(name: str, stage: str, code: str) -> None:
    seen = kvroom.diagnose(ENGINE_LOGS / f"{name}.log", offline=True)

    assert (seen.verdict.status, seen.verdict.stage) == (Status.FAILS, stage)
    assert seen.findings[0].code == code


@pytest.mark.parametrize("name", ["compile-default", "qwen3_next-hybrid", "own-run-0.32.0-cpu-ok", "kv-autofit"])
def test_healthy_starts_of_a_real_engine(name: str) -> None:
    seen = kvroom.diagnose(ENGINE_LOGS / f"{name}.log", offline=True)

    assert seen.verdict.status is Status.FITS
    assert not any(finding.severity == "error" for finding in seen.findings)


def test_a_flag_of_an_unknown_release_is_no_cause() -> None:
    log = "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization`"
    command = "vllm serve meta-llama/Llama-3.1-8B-Instruct --swap-space 4"
    seen = diagnosed(log, command=command)

    assert not any("--swap-space" in offer.why for offer in seen.offers)
    assert seen.known.priced is not None
