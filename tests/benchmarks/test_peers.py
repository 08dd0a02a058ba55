"""Other planners on the same launches, with small fakes of them: nothing is installed and no network is used."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from benchmarks.launches import Launch
from benchmarks.peers import page
from benchmarks.peers.__main__ import compared, main, written
from benchmarks.peers.asking import ask
from benchmarks.peers.checkpoint import INDEX, SHARD, Repository, config_of, repository
from benchmarks.peers.environments import NotInstallable, Peer, child_environment, peers, python_of
from benchmarks.peers.hub import serving
from benchmarks.peers.questions import asked, put_down
from benchmarks.peers.scores import figures, peer_row, scored

from kvroom.models.checkpoint import from_headers
from kvroom.models.source import load_model
from kvroom.units import GIB

ADAPTERS = Path(page.__file__).parent / "adapters"
LLAMA = "meta-llama/Llama-3.1-8B-Instruct"


def launch(*words: str, model: str = LLAMA, gpu: str = "1x RTX 3090", **more: Any) -> Launch:
    return Launch("a case", ("--model", model, "--max-model-len", "8192", *words), {}, gpu, "0.28.0", **more)


def facts(*words: str, **more: Any) -> dict[str, Any]:
    asking = launch(*words, **more)
    found = asked(asking, asking.plan().prediction)
    assert found is not None
    return dict(found.facts)


def repository_of(name: str, **more: bool) -> Repository:
    shape = load_model(name, offline=True)
    return repository(*_config(name, shape), **more)


def _config(name: str, shape: Any) -> tuple[Any, Any, Any]:
    config, beside = config_of(name, shape, None)
    return config, shape, beside


# The repository that planners read


@pytest.mark.parametrize(
    ("name", "gib"),
    [
        ("Qwen/Qwen3-8B", 2 * 8190735360 / GIB),
        ("openai/gpt-oss-120b", 60.77),  # 60.8 GiB of file, as launches and reports say
        ("Qwen/Qwen3-8B-FP8", 8.79),
    ],
)
def test_the_header_adds_up_to_the_checkpoint(name: str, gib: float) -> None:
    found = repository_of(name)
    (length,) = struct.unpack("<Q", found.header[:8])
    header = json.loads(found.header[8:])
    assert length == len(found.header) - 8
    checkpoint = from_headers([header])
    assert checkpoint is not None
    assert checkpoint.total_bytes == found.size - len(found.header)
    assert checkpoint.total_bytes / GIB == pytest.approx(gib, abs=0.01)
    assert json.loads(found.files[INDEX])["metadata"]["total_size"] == checkpoint.total_bytes


def test_tensors_have_the_names_that_files_give_them() -> None:
    header = json.loads(repository_of("Qwen/Qwen3-8B").header[8:])
    assert header["model.layers.35.self_attn.k_proj.weight"]["shape"] == [1024, 4096]
    assert header["model.layers.0.mlp.up_proj.weight"]["dtype"] == "BF16"
    assert not any("rotary" in name for name in header)


def test_layers_that_only_speculate_are_there_where_the_launch_loads_them() -> None:
    assert repository_of("Qwen/Qwen3.6-35B-A3B", speculates=True).size > repository_of("Qwen/Qwen3.6-35B-A3B").size


def test_a_stand_ins_config_says_how_the_model_itself_is_stored() -> None:
    question = facts(model="casperhansen/llama-3.1-8b-instruct-awq")
    assert question["config"]["quantization_config"]["quant_method"] == "awq"
    assert (question["format"], question["bits"], question["online"]) == ("packed", 4, False)
    assert question["model"] == "case-a-case/llama-3.1-8b-instruct-awq"


def test_peers_are_told_what_vllm_resolves() -> None:
    question = facts("-tp", "2", "--quantization", "fp8", "--kv-cache-dtype", "fp8", gpu="2x H100 80GB HBM3")
    assert (question["ranks"], question["utilization"], question["max_model_len"]) == (2, 0.92, 8192)
    assert (question["max_num_batched_tokens"], question["max_num_seqs"]) == (8192, 1024)
    assert (question["online"], question["format"], question["kv_fp8"], question["nvlink"]) == (True, "fp8", True, True)
    assert question["parameters"] == 8030261248


def test_data_parallel_ranks_share_the_weights_of_experts_only() -> None:
    assert facts("-dp", "2", gpu="2x H100 80GB HBM3")["ranks"] == 1
    assert facts("-dp", "2", model="Qwen/Qwen3-30B-A3B", gpu="2x H100 80GB HBM3")["ranks"] == 2


# The stand-in for the hub


@pytest.fixture
def hub() -> Iterator[str]:
    with serving({"o/m": repository_of("Qwen/Qwen3-8B")}) as address:
        yield address


def get(url: str, **headers: str) -> tuple[int, bytes, Mapping[str, str]]:
    with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=10) as reply:
        return reply.status, reply.read(), reply.headers


def test_the_hub_has_files_parts_and_descriptions(hub: str) -> None:
    assert json.loads(get(f"{hub}/o/m/resolve/main/config.json")[1])["model_type"] == "qwen3"
    about = json.loads(get(f"{hub}/api/models/o/m/revision/main?blobs=true")[1])
    assert {each["rfilename"] for each in about["siblings"]} == {SHARD, INDEX, "config.json"}
    assert about["safetensors"]["total"] == 8190735360
    assert {each["path"] for each in json.loads(get(f"{hub}/api/models/o/m/tree/main?recursive=true")[1])} == {
        SHARD,
        INDEX,
        "config.json",
    }
    status, data, headers = get(f"{hub}/o/m/resolve/main/{SHARD}", Range="bytes=0-7")
    assert (status, len(data)) == (206, 8)
    assert headers["Content-Range"].startswith("bytes 0-7/163")


def test_each_file_has_a_tag_of_its_own(hub: str) -> None:
    tags = {get(f"{hub}/o/m/resolve/main/{name}")[2]["ETag"] for name in ("config.json", INDEX)}
    assert len(tags) == 2


@pytest.mark.parametrize(
    ("path", "status"), [("/o/other/resolve/main/config.json", 404), (f"/o/m/resolve/main/{SHARD}", 416)]
)
def test_what_the_hub_does_not_give(hub: str, path: str, status: int) -> None:
    with pytest.raises(urllib.error.HTTPError) as found:
        get(hub + path)
    assert found.value.code == status
    found.value.close()


# Adapters, each over a fake of its peer that answers with what it was asked

QUESTION: dict[str, Any] = {
    "id": "1",
    "model": "o/m",
    "name": "o/m",
    "folder": "somewhere",
    "hub": "http://127.0.0.1:9",
    "config": {"hidden_size": 4},
    "gpu": "NVIDIA H100 80GB HBM3",
    "total": 80 * GIB,
    "nvlink": True,
    "tensor_parallel": 2,
    "pipeline_parallel": 1,
    "data_parallel": 1,
    "expert_parallel": False,
    "ranks": 2,
    "utilization": 0.5,
    "max_model_len": 1000,
    "max_num_seqs": 256,
    "max_num_batched_tokens": 2048,
    "dtype": "bfloat16",
    "kv_fp8": True,
    "quantization": None,
    "format": None,
    "bits": None,
    "online": False,
    "parameters": 8_000_000_000,
}
FAKES: dict[str, dict[str, str]] = {
    "vramscout": {
        "vramscout/modern_v07.py": """
from types import SimpleNamespace
def plan_modern(model, *, context, weight_dtype, kv_dtype, tp, vram_gib, engine, gpu_memory_utilization, prefill_chunk):
    assert (context, weight_dtype, kv_dtype, tp, engine, prefill_chunk) == (1000, "auto", "fp8", 2, "vllm", 2048)
    parts = {"Model weights / rank": 10, "KV cache": 7, "CUDA / runtime": 1, "Prefill scratch": 2, "Safety reserve": 0}
    return SimpleNamespace(parts_gib=parts, memory_budget_gib=vram_gib * gpu_memory_utilization, fits=True)
"""
    },
    "kvfit": {
        "kvfit/cli.py": """
import json
def main(words):
    given = dict(zip(words[1::2], words[2::2]))
    assert (given["--gpus"], given["--tp"], given["--context"], given["--kv-dtype"]) == ("2", "2", "1000", "fp8")
    budget = float(given["--hardware"].removeprefix("custom:")) * float(given["--utilization"])
    layout = {"weights_per_rank_gib": 10, "runtime_reserve_per_rank_gib": 3, "budget_per_rank_gib": budget}
    print(json.dumps({"layouts": [{**layout, "verdict": "fits"}]}))
"""
    },
    "ridgepoint": {
        "ridgepoint/__init__.py": """
import json
def fit(model, gpu, *, count, dtype, kv_cache_dtype, ctx, as_json):
    assert (gpu, count, dtype, kv_cache_dtype, ctx) == ("h100-80gb", 2, "fp16", "fp8", 1000)
    memory = {"weights_bytes": {"best": 20 * 2**30}, "overhead_bytes": {"best": 6 * 2**30}}
    return json.dumps({"memory": memory, "capacity": {"bytes_per_seq": 54 * 2**30}})
"""
    },
    "hf-mem": {
        "httpx2.py": "class AsyncClient: pass\n",
        "hf_mem/run.py": """
from types import SimpleNamespace
def run(model, *, experimental, max_model_len, kv_cache_dtype):
    assert (max_model_len, kv_cache_dtype) == (1000, "fp8")
    return SimpleNamespace(memory=20 * 2**30, kv_cache=2**30, total_memory=21 * 2**30)
""",
    },
    "modelinfo-cli": {
        "modelinfo/cli.py": """
def analyze_model(model, context, *, gpu_count, topology, is_vllm, gpu_vram_gb, gpu_util, timeout):
    assert (context, gpu_count, topology, is_vllm) == (1000, 2, "nvlink", True)
    pool = gpu_vram_gb * gpu_util * 2**30 - 26 * 2**30
    return {"footprint": {"base_memory_bytes": 20 * 2**30,
                          "vllm_metrics": {"paged_kv_pool": pool, "max_serving_capacity": 1000}}}
"""
    },
    "llm-mem-planner": {
        "llm_mem_planner/cli.py": """
import argparse, dataclasses
from types import SimpleNamespace
@dataclasses.dataclass
class HardwareSpec:
    gpu_mem_gib: float
    mem_fraction: float
    gpus_per_node: int
def build_parser():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model")
    parser.add_argument("--gpus-per-node", type=int)
    parser.add_argument("--gpu-mem-gib", type=float)
    parser.add_argument("--mem-fraction", type=float)
    return parser
def load_dims(config): return config["hidden_size"]
def estimate_params(dims): return dims
def dtype_bytes_from_str(name): return {"bf16": 2, "fp8": 1}[name]
def recommend_parallelism(dims, params, *, hw, seq_len, weight_dtype_bytes, kv_dtype_bytes, tp, ep, **more):
    assert (seq_len, weight_dtype_bytes, kv_dtype_bytes, tp, ep) == (1000, 2, 1, 2, 1)
    point = dict(weights_per_rank_gib=10, act_per_rank_gib=1, misc_per_rank_gib=2, fits=True)
    budget = hw.gpu_mem_gib * hw.mem_fraction
    return [SimpleNamespace(dp=2, sp=1), SimpleNamespace(dp=1, sp=1, budget_gib=budget, **point)], {}
"""
    },
    "vllm-wizard": {
        "vllm_wizard/schemas/inputs.py": """
from types import SimpleNamespace
def PlanRequest(**parts): return SimpleNamespace(**parts)
""",
        "vllm_wizard/planning/planner.py": """
from types import SimpleNamespace
def run_plan(request):
    assert request.model["params_b"] == 8.0 and request.model["quantization"] == "none"
    assert request.model["kv_cache_dtype"] == "fp8_e4m3fn" and request.hardware["tensor_parallel_size"] == 2
    total = request.hardware["gpus"] * request.hardware["vram_gb"] * request.policy["gpu_memory_utilization"]
    sizes = SimpleNamespace(vram_target_alloc_gb=total, weights_gb=10, overhead_gb=16, fits=True)
    return SimpleNamespace(feasibility=sizes)
""",
    },
    "aiconfigurator": {
        "aiconfigurator_core/sdk/common.py": "DefaultHFModels = set()\n",
        "aiconfigurator_core/sdk/memory.py": """
class KVCacheEstimator: pass
def estimate_kv_cache(model, system, backend, version, *, memory_fraction_kind, memory_fraction_value,
                      gpu_memory_capacity_bytes_override, max_num_tokens, tp_size, moe_tp_size, **more):
    assert (model, system, backend, version) == ("somewhere", "h100_sxm", "vllm", "current")
    assert (max_num_tokens, tp_size, moe_tp_size, more["moe_ep_size"]) == (2048, 2, 2, 1)
    pool = gpu_memory_capacity_bytes_override * memory_fraction_value - 13 * 2**30
    return {"memory_breakdown": {"weights_bytes": 10 * 2**30}, "total_kv_size_bytes": pool,
            "total_kv_size_tokens": 1000}
""",
    },
}
POOLS = {"hf-mem": 30.0}
"""GiB; the other fakes take 3 GiB beside the weights off the 40 GiB of the budget."""


def put(files: Mapping[str, str], folder: Path) -> Path:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    return folder


def answered(adapter: Path, folder: Path, *questions: Mapping[str, Any]) -> dict[str, Any]:
    env = {"PYTHONPATH": str(folder)}
    return ask(Path(sys.executable), adapter, questions, env, folder)


@pytest.mark.parametrize("name", FAKES)
def test_an_adapter_asks_its_peer_and_reads_its_answer(name: str, tmp_path: Path) -> None:
    (peer,) = peers([name])
    found = answered(peer.adapter, put(FAKES[name], tmp_path), QUESTION)
    weights, pool = 10 * GIB, POOLS.get(name, 27.0) * GIB
    assert found == {"1": {"weights": weights, "pool": pool, "fits": True}}


def test_every_peer_has_an_adapter_and_a_fake() -> None:
    listed = peers()
    assert {peer.name for peer in listed} == set(FAKES)
    assert {peer.adapter.name for peer in listed} == {path.name for path in ADAPTERS.glob("ask_*.py")}
    for peer in listed:
        assert peer.requires.endswith(f"=={peer.version}")
        assert peer.pool in ("own", "derived")
        assert peer.asked
    with pytest.raises(KeyError):
        peers(["nobody"])


def test_what_a_peer_does_not_know_is_unanswered(tmp_path: Path) -> None:
    put(FAKES["ridgepoint"], tmp_path)
    adapter = ADAPTERS / "ask_ridgepoint.py"
    other = {**QUESTION, "id": "2", "gpu": "Tesla T4"}
    packed = {**QUESTION, "id": "3", "format": "nf4"}
    found = answered(adapter, tmp_path, QUESTION, other, packed)
    assert found["2"] == {"unanswered": "lists no such card"}
    assert found["3"] == {"unanswered": "has no nf4 weights"}
    assert "pool" in found["1"]


FAKE_PEER = f"""
import os, sys
sys.path.insert(0, {str(ADAPTERS)!r})
from protocol import GIB, answer, serve
def ask(question):
    print("noise on stdout")
    os.write(1, b"noise below Python")
    if question["max_model_len"] == 2:
        raise ValueError("no config under " + question["folder"])
    if question["max_model_len"] == 3:
        os._exit(7)
    return answer(GIB, 2 * GIB, True)
serve(ask)
"""


def test_a_peer_that_prints_raises_or_dies_costs_only_its_own_launches(tmp_path: Path) -> None:
    adapter = tmp_path / "peer.py"
    adapter.write_text(FAKE_PEER, "utf-8")
    questions = [{**QUESTION, "id": str(at), "max_model_len": at} for at in (1, 2, 1000, 3, 4)]
    found = answered(adapter, tmp_path, *questions)
    assert found["1"] == found["1000"] == {"weights": GIB, "pool": 2 * GIB, "fits": True}
    assert found["2"] == {"unanswered": "no config under MODEL"}
    assert found["3"]["unanswered"].startswith("its process ended")
    assert found["4"]["unanswered"].startswith("its process ended")


def test_urllib_finds_the_hub_at_the_stand_in(hub: str) -> None:
    code = "import sys, urllib.request, protocol; protocol.redirect_urllib(sys.argv[1]); " + (
        "print(urllib.request.urlopen('https://huggingface.co/o/m/resolve/main/config.json').read().decode())"
    )
    printed = subprocess.run(
        [sys.executable, "-c", code, hub], cwd=ADAPTERS, capture_output=True, text=True, check=True, timeout=60
    )
    assert json.loads(printed.stdout)["model_type"] == "qwen3"


# Environments


def test_a_peers_process_sees_no_token_and_the_local_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "secret")
    env = child_environment("http://127.0.0.1:1", tmp_path)
    assert "HF_TOKEN" not in env
    assert (env["HF_ENDPOINT"], env["HOME"]) == ("http://127.0.0.1:1", str(tmp_path))


def test_a_package_that_is_not_there_says_so(tmp_path: Path) -> None:
    (peer,) = peers(["kvfit"])
    python = tmp_path / "kvfit-0.3.0" / "bin" / "python"
    put({"python": '#!/bin/sh\necho ERROR: No matching distribution found for "$6" >&2\nexit 1\n'}, python.parent)
    python.chmod(0o755)
    with pytest.raises(NotInstallable, match=r"^No matching distribution found for kvfit==0\.3\.0$"):
        python_of(peer, tmp_path)
    put({"python": "#!/bin/sh\nexit 0\n"}, python.parent)
    assert python_of(peer, tmp_path) == python
    put({"python": "#!/bin/sh\nexit 1\n"}, python.parent)
    assert python_of(peer, tmp_path) == python  # installed once


# Scores and the table


def row(name: str, logged: float, predicted: float, observed: str = "starts") -> dict[str, Any]:
    return {
        "id": name,
        "entries": {
            "available": {"logged": logged, "predicted": predicted},
            "weights": {"logged": 10.0, "predicted": 10.0},
        },
        "available": {"low": predicted, "expected": predicted, "high": predicted},
        "given_pool": None,
        "verdict": {"said": "fits", "observed": observed, "right": observed == "starts"},
    }


ROWS = [row("a", 10.0, 10.1), row("b", 20.0, 20.2), row("c", 30.0, 30.3, "fails")]
ANSWERS: dict[str, dict[str, Any]] = {
    "a": {"weights": 11 * GIB, "pool": 12 * GIB, "fits": True},
    "b": {"weights": None, "pool": None, "fits": False},
    "c": {"unanswered": "no"},
}


def test_a_peer_is_scored_on_what_it_answered() -> None:
    assert peer_row(ROWS[2], {"fits": False})["verdict"] == {"right": True}
    found = scored(ROWS, ANSWERS)
    assert found["answered"] == {"pools": 1, "weights": 1, "verdicts": 2}
    assert found["pool_median_gib"] == pytest.approx(2.0)
    assert found["pool_median_percent"] == pytest.approx(20.0)
    assert (found["over_promised_1gib"], found["pool_within_half_gib"]) == (1.0, 0.0)
    assert found["weights_median_percent"] == pytest.approx(10.0)
    assert found["verdict_right"] == 0.5
    assert found["kvroom_on_its_pools"]["pool_median_gib"] == pytest.approx(0.1)
    assert found["unanswered"] == {"no": 1}
    assert found["rows"] == {"a": [11.0, 12.0, True], "b": [None, None, False]}


def kept() -> dict[str, Any]:
    silent = scored(ROWS, {key: {"unanswered": "knows no model"} for key in "abc"})
    return {
        "asked": {"launches": 3, "pools": 3, "weights": 3, "verdicts": 3, "starts": 2},
        "kvroom": {"kvroom": figures(ROWS)},
        "peers": {
            "silent": {"version": "2", **silent},
            "gone": {"version": "3", "not_installable": "No matching distribution"},
            "near": {"version": "1", **scored(ROWS, ANSWERS)},
        },
    }


LISTED = {"near": {"pool": "derived"}, "silent": {"pool": "own"}, "gone": {"pool": "own"}}


def test_the_table_has_every_planner_nearest_first() -> None:
    head, *rows = page.lines_of(kept(), LISTED)
    assert [cells[0] for cells in rows] == ["kvroom", "near 1*", "silent 2", "gone 3"]
    assert all(len(cells) == len(head) for cells in rows)
    assert rows[1][1:] == ["1 of 3", "2.00", "20.0", "0 %", "100 %", "10.0 (1)", "50 % (2)", "0.10"]
    assert rows[2][1:3] == ["0 of 3", "-"]
    assert rows[3][1] == "not installable: No matching distribution"


def test_the_section_says_what_was_not_answered() -> None:
    section = page.side_by_side(kept(), LISTED)
    assert "| near 1* | 1 of 3 |" in section
    assert "- silent: 3 launches: knows no model" in section
    assert "right for 67%" in section
    assert "knows no model" in page.text(kept(), LISTED)


def test_figures_are_kept_one_answer_a_line() -> None:
    text = written(kept())
    found = json.loads(text)
    assert found["rows"]["near"] == {"a": [11.0, 12.0, True], "b": [None, None, False]}
    assert "rows" not in found["peers"]["near"]
    assert '   "a": [11.0, 12.0, true],\n' in text


REPORT = {
    "id": 7,
    "vllm_version": "0.28.0",
    "gpu": {"name": "RTX 3090", "count": 1},
    "model": LLAMA,
    "command": ["vllm", "serve", LLAMA, "--max-model-len", "8192"],
    "observed": {"stage": "serving", "kv_available_gib": 5.0, "weights_gib": 15.0},
}


class Fake(Peer):
    @property
    def adapter(self) -> Path:
        return Path(self.homepage)


def test_the_whole_way_from_a_corpus_to_figures(tmp_path: Path) -> None:
    corpus = tmp_path / "corpus" / "started"
    corpus.mkdir(parents=True)
    (corpus / "7.json").write_text(json.dumps(REPORT), "utf-8")
    adapter = tmp_path / "peer.py"
    adapter.write_text(FAKE_PEER, "utf-8")
    python = tmp_path / "envs" / "fake-1" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.symlink_to(sys.executable)
    (tmp_path / "envs" / "fake-1" / "installed").touch()
    fake = Fake("fake", "1", "fake==1", "", str(adapter), "", "", "", "own")
    found = compared(corpus.parent, [fake], tmp_path / "envs")
    assert found["asked"] == {"launches": 1, "pools": 1, "weights": 1, "verdicts": 1, "starts": 1}
    assert found["peers"]["fake"]["rows"] == {"7": [1.0, 2.0, True]}
    assert found["peers"]["fake"]["pool_median_gib"] == pytest.approx(3.0)


def test_the_command_refuses_what_it_cannot_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["--corpus", str(tmp_path)], ["--corpus", str(tmp_path), "--peer", "nobody"]):
        with pytest.raises(SystemExit):
            main(words)
    (tmp_path / "started").mkdir()
    for words in (["--peer", "nobody"], ["--write", "--peer", "kvfit"]):
        with pytest.raises(SystemExit):
            main(["--corpus", str(tmp_path), *words])
    printed = capsys.readouterr().err
    assert "has no folder started/" in printed
    assert "no peer is called 'nobody'" in printed
    assert "leave --peer out" in printed


def test_the_kept_figures_are_of_every_listed_peer() -> None:
    found = json.loads(page.KEPT.read_text("utf-8"))
    assert set(found["peers"]) == {peer.name for peer in peers()}
    for peer in peers():
        assert found["peers"][peer.name]["version"] == peer.version
    medians = [each["pool_median_gib"] for each in found["peers"].values() if each.get("pool_median_gib") is not None]
    assert found["kvroom"]["kvroom"]["pool_median_gib"] < min(medians)
    assert page.side_by_side().startswith("\n## Other planners\n")


def test_a_config_also_lies_in_a_folder(tmp_path: Path) -> None:
    asking = launch()
    each = asked(asking, asking.plan().prediction)
    assert each is not None
    question = put_down(each, tmp_path, "http://127.0.0.1:1")
    assert json.loads((Path(question["folder"]) / "config.json").read_text("utf-8"))["model_type"] == "llama"
