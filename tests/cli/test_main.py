"""The command line, run in this process: output, exit codes, errors."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from kvroom.cli.main import run

FIT = ["plan", "Qwen/Qwen3-0.6B", "--gpu", "A100-80GB", "--max-model-len", "4096", "--offline"]


def test_plan_prints_the_verdict_first(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(FIT) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("Qwen/Qwen3-0.6B on 1 x NVIDIA A100-SXM4-80GB, vLLM ")
    assert lines[1] == "FITS  it starts"


def test_plan_exits_0_also_when_the_launch_fails(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["plan", "meta-llama/Llama-3.1-8B-Instruct", "--gpu", "RTX 3090", "--offline"]) == 0
    assert "FAILS" in capsys.readouterr().out


CONTRACT = {
    "schema",
    "kind",
    "model",
    "vllm_version",
    "devices",
    "attention_backend",
    "ledger",
    "pool",
    "verdict",
    "remedies",
    "command",
    "predicted_log",
}


def test_the_json_contract(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["plan", "meta-llama/Llama-3.1-8B-Instruct", "--gpu", "2x RTX 3090", "--offline", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data.keys() >= CONTRACT
    assert data["schema"] == "kvroom/1"
    assert data["kind"] == "plan"
    assert data["devices"][0].keys() >= {"name", "count", "total_bytes"}
    assert [entry["entry"] for entry in data["ledger"]] == [
        "requested",
        "weights",
        "activation",
        "other",
        "cuda_graphs",
        "available",
    ]
    for entry in data["ledger"]:
        assert entry.keys() >= {"low", "expected", "high", "basis", "why"}
        assert all(isinstance(entry[key], int) for key in ("low", "expected", "high"))
    assert data["pool"].keys() >= {
        "bytes_per_block",
        "block_size",
        "groups",
        "num_blocks",
        "tokens",
        "needed_bytes",
        "max_concurrency",
        "max_model_len",
        "longest_context",
    }
    assert data["pool"]["groups"][0].keys() >= {"kind", "layers", "page_bytes", "block_size"}
    assert data["verdict"].keys() >= {"status", "stage", "message"}
    for remedy in data["remedies"]:
        assert remedy.keys() >= {"flags", "why", "price", "verdict", "pool"}
    assert data["command"][:2] == ["vllm", "serve"]


@pytest.mark.parametrize(
    ("command", "code"),
    [
        ("vllm serve Qwen/Qwen3-0.6B --max-model-len 4096", 0),
        ("python -m vllm.entrypoints.openai.api_server --model Qwen/Qwen3-0.6B --max-model-len 4096", 0),
        (
            "docker run --gpus all vllm/vllm-openai:v0.28.0 --model Qwen/Qwen3-0.6B --max-model-len 4096",
            0,
        ),
        ("vllm serve meta-llama/Llama-3.1-70B-Instruct", 1),
        ("vllm serve Qwen/Qwen3-0.6B --max-model-len 4096 --gpu-memory-utilization 0.0241", 3),
    ],
)
def test_check_takes_real_commands_and_tells_by_its_exit_code(command: str, code: int, capsys) -> None:
    assert (
        run(["check", "--gpu", "A100-80GB", "--vllm", "0.28.0", "--offline", "--json", "--", *command.split()]) == code
    )
    assert json.loads(capsys.readouterr().out)["kind"] == "plan"


def test_check_reads_a_script_and_prints_a_list_with_lines(tmp_path: Path, capsys) -> None:
    script = tmp_path / "serve.sh"
    script.write_text('#!/bin/sh\nMODEL=Qwen/Qwen3-0.6B\n\n\nvllm serve "$MODEL" \\\n  --max-model-len ${LEN:-4096}\n')
    assert run(["check", str(script), "--gpu", "A100-80GB", "--offline", "--json"]) == 0
    (data,) = json.loads(capsys.readouterr().out)
    assert (data["source"], data["line"], data["model"]) == (str(script), 5, "Qwen/Qwen3-0.6B")
    assert data["pool"]["max_model_len"] == 4096


def test_the_image_tag_chooses_the_rules(capsys: pytest.CaptureFixture[str]) -> None:
    run(
        [
            "check",
            "--gpu",
            "H100",
            "--offline",
            "--json",
            "--",
            *["docker", "run", "--gpus", "all", "vllm/vllm-openai:v0.19.1", "--model", "Qwen/Qwen3-8B"],
        ]
    )
    assert json.loads(capsys.readouterr().out)["vllm_version"] == "0.19.1"


BAD = [
    (["plan", "no/such-model", "--gpu", "RTX 4090", "--offline"], "no/such-model"),
    (["plan", "Qwen/Qwen3-8B", "--gpu", "RTX 4900", "--offline"], "RTX 4900"),
    (["plan", "Qwen/Qwen3-8B", "--gpu", "A100", "--offline"], "several cards"),
    (["plan", "Qwen/Qwen3-8B", "--gpu", "RTX 4090", "--gpu-memory", "-3", "--offline"], "-3"),
    (["plan", "Qwen/Qwen3-8B", "--gpu", "RTX 4090", "--gpu-memory-utilization", "1.5", "--offline"], "1.5"),
    (["plan", "Qwen/Qwen3-8B", "--gpu", "RTX 4090", "--max-num-seqs", "0", "--offline"], "max-num-seqs"),
    (
        ["plan", "Qwen/Qwen3-8B", "--gpu", "RTX 4090", "--tensor-parallel-size", "0", "--offline"],
        "tensor-parallel-size",
    ),
    (["plan", "Qwen/Qwen3-8B", "--gpu", "RTX 4090", "--vllm", "latest", "--offline"], "latest"),
    (["plan", "--gpu", "RTX 4090", "--offline"], "model"),
    (["plan", "Qwen/Qwen3-8B", "--gpu", "RTX 4090", "--measured", "speed=3", "--offline"], "speed"),
    (["check", "--gpu", "RTX 4090", "--offline", "--", "vllm", "serve"], "model"),
    (["check", "/no/such/file.sh"], "/no/such/file.sh"),
    (["check"], "Nothing to check"),
    (["rule", "KVR999"], "KVR999"),
    (["rule", "\x1b[31m"], "No"),
]


@pytest.mark.parametrize(("arguments", "named"), BAD, ids=[" ".join(case[0][:5]) for case in BAD])
def test_bad_input_is_one_clear_error_and_exit_2(arguments: list[str], named: str, capsys) -> None:
    assert run(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: ") or "Usage" in err
    assert named.lower() in err.lower()
    assert "Traceback" not in err
    assert "\x1b" not in err


def test_an_unclosed_quote_in_a_script_names_its_line(tmp_path: Path, capsys) -> None:
    script = tmp_path / "serve.sh"
    script.write_text("echo start\nvllm serve 'Qwen/Qwen3-8B\n")
    assert run(["check", str(script), "--gpu", "RTX 4090", "--offline"]) == 2
    assert "2" in capsys.readouterr().err


def test_releases_outside_the_known_ones_use_the_nearest_rules_and_say_so(capsys) -> None:
    assert run([*FIT, "--vllm", "0.99.0"]) == 0
    assert "vLLM 0.99.0 is newer than the rules known here" in capsys.readouterr().out
    assert run([*FIT, "--vllm", "0.2.5"]) == 0
    assert "vLLM 0.2.5 is older than the rules known here" in capsys.readouterr().out


def test_unknown_flags_are_reported_and_the_rest_still_planned(capsys) -> None:
    assert run([*FIT, "--max-model-length", "5", "--swap-space", "4", "--vllm", "0.28.0"]) == 0
    out = capsys.readouterr().out
    assert "--max-model-length" in out
    assert "--max-model-len" in out
    assert "swap-space" in out


def test_secrets_are_not_printed(capsys) -> None:
    assert run([*FIT, "--api-key", "sk-abcdefgh12345678", "--hf-token", "hf_abcdefghijkl"]) == 0
    out = capsys.readouterr().out
    assert "sk-abcdefgh12345678" not in out
    assert "hf_abcdefghijkl" not in out
    assert "<redacted>" in out


def test_explain_names_rules_with_their_source(capsys) -> None:
    assert run([*FIT, "--explain"]) == 0
    out = capsys.readouterr().out
    assert "request_memory" in out
    assert "gpu_worker.py" in out or "gpu_model_runner.py" in out or "model_runner.py" in out


def test_rule_prints_an_explanation_and_the_list(capsys) -> None:
    assert run(["rule", "KVR101"]) == 0
    assert capsys.readouterr().out.startswith("# KVR101 ")
    assert run(["rule"]) == 0
    assert "KVR101" in capsys.readouterr().out


@pytest.mark.parametrize(
    "arguments", [["--help"], ["plan", "--help"], ["check", "--help"], ["rule", "--help"], ["--version"]]
)
def test_help_and_version(arguments: list[str], capsys) -> None:
    assert run(arguments) == 0
    assert capsys.readouterr().out


def test_the_module_runs_as_a_program() -> None:
    done = subprocess.run([sys.executable, "-m", "kvroom", *FIT, "--json"], capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert json.loads(done.stdout)["verdict"]["status"] == "fits"
    bad = subprocess.run(
        [sys.executable, "-m", "kvroom", "plan", "x/y", "--offline"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert bad.returncode == 2


def test_standard_input_is_read() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "kvroom", "check", "-", "--gpu", "A100-80GB", "--offline"],
        input="vllm serve Qwen/Qwen3-0.6B --max-model-len 4096\n",
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0
    assert "FITS" in done.stdout
