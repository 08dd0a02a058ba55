"""The whole record and its three faces."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from tests.environment.fakes import LINUX, FakePackages, sources

import kvroom
from kvroom.cli.main import run
from kvroom.devices.device import GpuProcess
from kvroom.devices.inventory import Gpu, Inventory
from kvroom.environment.record import Record, environment_record
from kvroom.report.as_json import SCHEMA
from kvroom.report.environment_json import environment_data
from kvroom.report.environment_text import environment_markdown, environment_text, print_environment
from kvroom.units import GIB, MIB


def two_cards() -> Inventory:
    processes = (
        GpuProcess(41, "/data/people/jane/venv/bin/python3 -m vllm --api-key x", 20 * GIB),
        GpuProcess(42, "VLLM::EngineCore_DP0", None),
        GpuProcess(43, "", MIB),
    )
    card = Gpu(0, "NVIDIA H100 80GB HBM3", 80 * GIB, 20 * GIB, 59 * GIB, GIB, "9.0", False, processes)
    return Inventory("NVIDIA", (card, Gpu(1, "", problem="GPU is lost")), "580.95.05", "13.0")


@pytest.fixture
def record(tmp_path: Path) -> Record:
    files = LINUX | {
        "proc/self/cgroup": "0::/\n",
        "sys/fs/cgroup/cgroup.controllers": "memory",
        "sys/fs/cgroup/memory.max": str(32 * GIB),
        "sys/fs/cgroup/memory.current": str(31 * GIB),
        "sys/fs/cgroup/memory.events": "oom_kill 2\n",
        "sys/fs/cgroup/cpu.max": "750000 100000",
        ".dockerenv": "",
    }
    env = {"CUDA_VISIBLE_DEVICES": "0", "HF_TOKEN": "hf_abcdefgh", "HF_HOME": "/data/people/jane/hub"}
    packages = FakePackages({"vllm": "0.28.0", "torch": "2.9.0"}, {"torch/version.py": "cuda = '12.8'\n"})
    return environment_record(sources(tmp_path, files, env, packages=packages, inventory=two_cards))


TEXT = """\
GPUs
  GPU 0   NVIDIA H100 80GB HBM3; 80.00 GiB total, 20.00 GiB used, 59.00 GiB free, 1.00 GiB reserved; CC
          process 41 python3: 20.00 GiB
          process 42 VLLM::EngineCore_DP0: unknown
          process 43 unknown: 1.0 MiB
  GPU 1   cannot be read: GPU is lost
  driver  580.95.05
  CUDA    up to 13.0 with this driver

Software
  kvroom    VERSION
  Python    3.12.3
  vllm      0.28.0
  torch     2.9.0 (built for CUDA 12.8)
  not here  transformers, flashinfer-python, triton, xformers, flash-attn

System
  OS         Ubuntu 24.04.1 LTS x86_64
  kernel     6.8.0-48-generic
  libc       glibc 2.39
  container  docker
  WSL        no

Limits
  memory         62.5 MiB, 31.2 MiB available
  swap           none
  shared memory  64.0 MiB, 60.0 MiB free
  cgroup memory  limit 32.00 GiB, 31.00 GiB used, page cache included; killed for lack of memory: 2 (v2)
  cgroup CPU     7.5 CPUs
  CPUs           9 usable of 32, AMD EPYC 9554
  open files     1024, at most 524288

Environment variables
  CUDA_VISIBLE_DEVICES  0
  HF_HOME               ~/hub
  HF_TOKEN              <redacted>""".replace("VERSION", kvroom.__version__).replace("CC", "compute capability 9.0")


def test_the_text(record: Record) -> None:
    assert environment_text(record) == TEXT


def test_the_terminal_shows_the_same_text(record: Record) -> None:
    file = io.StringIO()
    print_environment(record, Console(file=file, width=60, highlight=False))
    assert file.getvalue() == TEXT + "\n"


def test_the_markdown_folds_and_says_the_most_in_its_summary(record: Record) -> None:
    lines = environment_markdown(record).splitlines()
    summary = "Environment: vLLM 0.28.0, 1 x NVIDIA H100 80GB HBM3, 1 x unreadable GPU"
    assert lines[:4] == ["<details>", f"<summary>{summary}</summary>", "", "```text"]
    assert lines[4:-3] == TEXT.splitlines()
    assert lines[-3:] == ["```", "", "</details>"]


def test_markdown_in_a_value_cannot_leave_the_block(tmp_path: Path) -> None:
    gpu = Inventory("NVIDIA", (Gpu(0, "</summary><b>"),), None)
    here = sources(tmp_path, env={"VLLM_X": "a ````\n```` b"}, inventory=lambda: gpu)
    text = environment_markdown(environment_record(here))
    assert "`````text\n" in text
    assert text.endswith("\n`````\n\n</details>")
    assert "</summary><b>" not in text.split("`````")[0]


def test_the_json(record: Record) -> None:
    data = environment_data(record)
    assert (data["schema"], data["kind"]) == (SCHEMA, "env")
    assert json.loads(json.dumps(data, allow_nan=False)) == data
    first, second = data["gpus"]
    assert (first["total_bytes"], first["free_bytes"], first["architecture"]) == (80 * GIB, 59 * GIB, "9.0")
    assert first["processes"][0] == {"pid": 41, "name": "python3", "used_bytes": 20 * GIB}
    assert first["processes"][2] == {"pid": 43, "name": None, "used_bytes": MIB}
    assert (second["name"], second["problem"], second["free_bytes"]) == (None, "GPU is lost", None)
    assert data["packages"]["vllm"] == "0.28.0"
    assert data["packages"]["triton"] is None
    assert data["cgroup"] == {
        "version": 2,
        "memory_limit_bytes": 32 * GIB,
        "memory_used_bytes": 31 * GIB,
        "oom_kills": 2,
        "cpu_quota": 7.5,
    }
    assert data["variables"]["HF_TOKEN"] == "<redacted>"
    assert data["gpu_problem"] is None


def test_no_gpu_is_a_clear_line(tmp_path: Path) -> None:
    record = environment_record(sources(tmp_path))
    assert "  none  There is no NVIDIA GPU here (Driver Not Loaded)." in environment_text(record).splitlines()
    assert "no vLLM here, no GPU" in environment_markdown(record)
    data = environment_data(record)
    assert (data["gpus"], data["driver_version"]) == ([], None)
    assert data["gpu_problem"] == "There is no NVIDIA GPU here (Driver Not Loaded)."


def test_amd_cards_have_an_architecture_and_no_capability(tmp_path: Path) -> None:
    amd = Inventory("AMD", (Gpu(0, "AMD Instinct MI300X", 192 * GIB, architecture="gfx942"),), "6.7.0")
    text = environment_text(environment_record(sources(tmp_path, inventory=lambda: amd)))
    assert "  GPU 0   AMD Instinct MI300X; 192.00 GiB total; gfx942\n  driver  6.7.0\n" in text


NAMES = (
    *LINUX,
    "proc/1/cgroup",
    "proc/self/cgroup",
    "proc/self/mountinfo",
    "sys/fs/cgroup/cgroup.controllers",
    "sys/fs/cgroup/memory.max",
    "sys/fs/cgroup/memory.current",
    "sys/fs/cgroup/memory.events",
    "sys/fs/cgroup/cpu.max",
    "usr/local/cuda/version.json",
)
WORDS = st.sampled_from(
    [
        "MemTotal:",
        "kB",
        "oom_kill",
        "max",
        "0",
        "-1",
        "9" * 30,
        "0-",
        "5-2",
        "::",
        "/..",
        "Max open files",
        "\u00b2",
        "\n",
    ]
)
DAMAGED = st.one_of(st.binary(max_size=60), st.lists(WORDS, max_size=12).map(lambda words: " ".join(words).encode()))


@given(st.dictionaries(st.sampled_from(NAMES), DAMAGED), st.dictionaries(st.just("VLLM_X"), st.text()))
def test_damaged_files_never_stop_it(
    tmp_path_factory: pytest.TempPathFactory, files: dict[str, bytes], env: dict[str, str]
) -> None:
    root = tmp_path_factory.mktemp("root")
    for name, data in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(data)
    record = environment_record(sources(root, env=env))
    assert environment_markdown(record)
    assert json.dumps(environment_data(record), allow_nan=False)


def test_folders_in_place_of_files_are_unknown(tmp_path: Path) -> None:
    for name in NAMES:
        (tmp_path / name).mkdir(parents=True)
    assert environment_record(sources(tmp_path)).host.memory_total_bytes is None


def test_the_command_runs_here_in_every_form(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["env"]) == 0
    assert capsys.readouterr().out.startswith("GPUs\n")
    for form in (["--json"], ["--format", "json"], ["--json", "--format", "json"]):
        assert run(["env", *form]) == 0
        assert json.loads(capsys.readouterr().out)["kind"] == "env"
    assert run(["env", "--format", "github"]) == 0
    assert capsys.readouterr().out.startswith("<details>\n")


@pytest.mark.parametrize("wrong", [["--json", "--format", "github"], ["--format", "html"], ["extra"]])
def test_wrong_usage_exits_with_2(wrong: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["env", *wrong]) == 2
    assert capsys.readouterr().err


def test_the_python_api_gives_the_record() -> None:
    assert isinstance(kvroom.environment_record(), Record)
