"""``kvroom check`` on manifests and folders, and ``kvroom plan --emit``: output and exit codes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from kvroom.cli.main import run

FITS = """\
kind: Deployment
metadata: {name: d}
spec:
  template:
    spec:
      nodeSelector: {nvidia.com/gpu.product: NVIDIA-L4}
      containers:
      - name: vllm
        image: vllm/vllm-openai:v0.28.0
        args: [--model=Qwen/Qwen3-0.6B, --max-model-len=8192]
        resources: {limits: {nvidia.com/gpu: 1}}
"""
FAILS = FITS.replace("Qwen3-0.6B", "Qwen3-32B")
MOUNTED = FITS.replace("Qwen/Qwen3-0.6B", "/models/q")
NO_CARD = FITS.replace("nvidia.com/gpu.product: NVIDIA-L4", "disk: ssd")
BROKEN = "kind: Pod\nspec:\n  containers:\n  - image: vllm\n   args: []\n"
OTHER = "kind: Service\nspec: {ports: []}\n"


def check(tmp_path: Path, *texts: str, more: tuple[str, ...] = ()) -> int:
    for number, text in enumerate(texts):
        (tmp_path / f"{number}.yaml").write_text(text)
    return run(["check", str(tmp_path), "--offline", *more])


@pytest.mark.parametrize(
    ("texts", "code"),
    [
        ((FITS, OTHER), 0),
        ((FITS, FAILS, BROKEN, MOUNTED), 1),
        ((FITS, BROKEN, MOUNTED), 2),
        ((FITS, MOUNTED), 3),
        ((NO_CARD,), 3),
        ((f"{BROKEN}---\n{FITS}",), 2),
        ((f"{BROKEN}---\n{FAILS}",), 1),
    ],
)
def test_the_exit_code_is_that_of_the_worst(texts: tuple[str, ...], code: int, tmp_path: Path, capsys) -> None:
    assert check(tmp_path, *texts) == code
    assert capsys.readouterr().err == ""


def test_json_is_a_list_with_source_and_line(tmp_path: Path, capsys) -> None:
    assert check(tmp_path, FITS, FAILS, MOUNTED, BROKEN, more=("--json",)) == 1
    data = json.loads(capsys.readouterr().out)
    assert [(Path(each["source"]).name, each["line"], each["kind"]) for each in data] == [
        ("0.yaml", 10, "plan"),
        ("1.yaml", 10, "plan"),
        ("2.yaml", 10, "plan"),
        ("3.yaml", 5, "unreadable"),
    ]
    assert [each["verdict"]["status"] for each in data[:3]] == ["fits", "fails", "unknown"]
    assert data[0]["devices"][0]["name"] == "NVIDIA L4"


@pytest.mark.parametrize("assumed", ["Qwen/Qwen3-0.6B", "/models/q=Qwen/Qwen3-0.6B"])
def test_the_checkpoint_behind_a_path_can_be_named(assumed: str, tmp_path: Path, capsys) -> None:
    assert check(tmp_path, MOUNTED, more=("--assume-model", assumed)) == 0
    assert check(tmp_path, MOUNTED) == 3
    assert "--assume-model MODEL" in capsys.readouterr().out


def test_the_card_of_the_option_goes_before_that_of_the_nodes(tmp_path: Path, capsys) -> None:
    assert check(tmp_path, FAILS, more=("--gpu", "H200", "--json")) == 0
    assert json.loads(capsys.readouterr().out)[0]["devices"][0]["name"] == "NVIDIA H200"


def test_nodes_with_either_of_two_cards_are_checked_for_both(tmp_path: Path, capsys) -> None:
    either = FITS.replace("nvidia.com/gpu.product: NVIDIA-L4", "karpenter.k8s.aws/instance-gpu-name: a100")
    assert check(tmp_path, either, more=("--json",)) == 0
    names = [each["devices"][0]["name"] for each in json.loads(capsys.readouterr().out)]
    assert names == ["NVIDIA A100-SXM4-40GB", "NVIDIA A100-SXM4-80GB"]


@pytest.mark.parametrize(
    "text",
    [
        FITS.replace("nvidia.com/gpu: 1", "nvidia.com/mig-1g.12gb: 1"),
        FITS.replace("NVIDIA-L4", "NVIDIA-L4-MIG-1g.12gb"),
        "servingEngineSpec:\n  modelSpec:\n  - modelURL: Qwen/Qwen3-0.6B\n    requestGPU: 1\n"
        "    requestGPUMem: '3000'\n    vllmConfig: {maxModelLen: 4096}\n",
    ],
)
def test_a_part_of_a_card_is_not_taken_for_the_whole(text: str, tmp_path: Path, capsys) -> None:
    assert check(tmp_path, text, more=("--gpu", "L4")) == 3
    assert "--gpu-memory" in capsys.readouterr().out
    assert check(tmp_path, text, more=("--gpu", "L4", "--gpu-memory", "11GiB")) == 0


def test_a_file_that_cannot_be_read_does_not_hide_the_others(tmp_path: Path, capsys) -> None:
    (tmp_path / "a.yaml").write_bytes(b"vllm: \xff")
    (tmp_path / "b.yaml").write_text(FITS)
    names = [str(tmp_path / name) for name in ("a.yaml", "b.yaml", "gone.sh")]
    assert run(["check", *names, "--offline", "--json"]) == 2
    data = json.loads(capsys.readouterr().out)
    assert sorted(each["kind"] for each in data) == ["plan", "unreadable", "unreadable"]


@pytest.mark.parametrize("asked", [("--gpu", "no such card"), ("--gpu", "L4", "--vllm", "next")])
def test_a_wrong_option_is_an_error_of_the_command_line(asked: tuple[str, ...], tmp_path: Path, capsys) -> None:
    assert check(tmp_path, FITS, more=asked) == 2
    out = capsys.readouterr()
    assert (out.out, out.err != "") == ("", True)


@pytest.mark.parametrize(("form", "begins"), [("github", "::error file="), ("sarif", '{\n "$schema"')])
def test_other_formats(form: str, begins: str, tmp_path: Path, capsys) -> None:
    assert check(tmp_path, FAILS, more=("--format", form)) == 1
    assert capsys.readouterr().out.startswith(begins)


def test_a_manifest_from_a_pipe_is_known_by_its_lines() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "kvroom", "check", "-", "--offline", "--json"],
        input=f"---\n{FITS}",
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)[0]["line"] == 11


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "holds no launch of vLLM; 1 files were looked at"),
        (["--assume-model", "=x"], "not MODEL or PATH=MODEL"),
        (["--json", "--format", "sarif"], "cannot both be had"),
    ],
)
def test_wrong_usage_is_one_error(arguments: list[str], says: str, tmp_path: Path, capsys) -> None:
    assert check(tmp_path, OTHER, more=tuple(arguments)) == 2
    assert says in capsys.readouterr().err


def test_a_manifest_that_starts_nothing_is_an_error_unless_that_is_allowed(tmp_path: Path, capsys) -> None:
    path = tmp_path / "x.yaml"
    path.write_text(OTHER)
    assert run(["check", str(path)]) == 2
    assert "starts no vLLM server" in capsys.readouterr().err
    assert run(["check", str(path), "--allow-none"]) == 0
    assert run(["check", str(path), "--allow-none", "--format", "github"]) == 0


@pytest.mark.parametrize("kind", ["command", "docker", "compose", "k8s"])
def test_what_plan_emits_is_fine_for_check(kind: str, tmp_path: Path, capsys) -> None:
    asked = ["Qwen/Qwen3-8B", "--gpu", "RTX 4090", "--vllm", "0.28.0", "--offline"]
    assert run(["plan", *asked, "--emit", kind]) == 0
    path = tmp_path / ("d.sh" if kind in {"command", "docker"} else "d.yaml")
    path.write_text(capsys.readouterr().out)
    asked = ["--gpu", "RTX 4090"] if path.suffix == ".sh" else []
    assert run(["check", str(path), "--offline", "--vllm", "0.28.0", "--json", *asked]) == 0
    (data,) = json.loads(capsys.readouterr().out)
    assert data["devices"][0]["name"] == "NVIDIA GeForce RTX 4090"


def test_a_deployment_and_json_cannot_both_be_had(capsys) -> None:
    assert run(["plan", "Qwen/Qwen3-0.6B", "--gpu", "L4", "--offline", "--emit", "k8s", "--json"]) == 2
    assert "--emit" in capsys.readouterr().err


def test_an_unset_variable_is_not_the_whole_folder(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["check", ""]) == 2
    assert "empty" in capsys.readouterr().err


def test_a_name_with_a_line_break_stays_on_one_line(tmp_path: Path, capsys) -> None:
    (tmp_path / "odd\nname.yaml").write_text(FITS)
    assert run(["check", str(tmp_path), "--offline"]) == 0
    assert r"odd\nname.yaml:10" in capsys.readouterr().out
