"""The objects that are written are valid Kubernetes, and say what the plan says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

import kvroom
from kvroom.deploy import emit
from kvroom.errors import UsageError

VERSIONS = ("1.28", "1.37")


def objects(model: str = "Qwen/Qwen3-8B", **asked: Any) -> dict[str, dict[str, Any]]:
    asked = {"gpu": "RTX 4090", "vllm": "0.28.0", "offline": True, "learned": False, **asked}
    return {each["kind"]: each for each in yaml.safe_load_all(emit(kvroom.plan(model, **asked), "k8s"))}


def container(found: dict[str, dict[str, Any]]) -> dict[str, Any]:
    (only,) = found["Deployment"]["spec"]["template"]["spec"]["containers"]
    return only


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    "asked",
    [
        {},
        {"gpu": "4x H100", "tensor_parallel_size": 4, "max_model_len": 32768, "api_key": "sk-0123456789abcdef"},
        {"gpu": "MI300X", "env": {"VLLM_LOGGING_LEVEL": "DEBUG"}},
        {"max_model_len": 4096, "hf_overrides": {"rope_theta": 1e6}, "port": 9000},
    ],
)
def test_the_objects_pass_the_schema(asked: dict[str, Any], version: str) -> None:
    found = objects(**asked)
    assert set(found) == {"PersistentVolumeClaim", "Deployment", "Service"}
    for each in found.values():
        kubernetes_validate.validate(each, version, strict=True)


def test_a_broken_object_would_not_pass() -> None:
    found = objects()["Deployment"]
    found["spec"]["template"]["spec"]["containers"][0]["startupProbe"]["failureThreshold"] = "many"
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(found, VERSIONS[-1], strict=True)


def test_the_image_is_that_of_the_rules_and_the_flags_are_written_out() -> None:
    only = container(objects(vllm="0.28.0"))
    assert only["image"] == "vllm/vllm-openai:v0.28.0"
    assert only["command"] == ["vllm", "serve"]
    assert only["args"][0] == "Qwen/Qwen3-8B"
    flags = dict(zip(only["args"][1::2], only["args"][2::2], strict=True))
    assert flags["--gpu-memory-utilization"] == "0.92"
    assert set(flags) >= {"--max-model-len", "--max-num-seqs", "--max-num-batched-tokens"}


def test_a_release_newer_than_the_rules_gets_the_image_of_the_rules() -> None:
    assert container(objects(vllm="0.99.0"))["image"] == "vllm/vllm-openai:v0.33.0"


def test_old_releases_are_started_by_their_module() -> None:
    only = container(objects("meta-llama/Llama-3.1-8B-Instruct", vllm="0.5.4", gpu="A100-80GB"))
    assert only["command"] == ["python3", "-m", "vllm.entrypoints.openai.api_server", "--model"]


def test_no_secret_is_written_and_each_is_taken_from_a_secret() -> None:
    plan = kvroom.plan(
        "Qwen/Qwen3-8B",
        gpu="RTX 4090",
        vllm="0.28.0",
        offline=True,
        learned=False,
        max_model_len=8192,
        api_key="sk-0123456789abcdef",
        env={"HF_TOKEN": "hf_abcdefghijklmnopqrstuvwxyz"},
    )
    for kind in ("command", "docker", "compose", "k8s"):
        text = emit(plan, kind)
        assert "sk-0123456789" not in text
        assert "hf_abcdefgh" not in text
    references = {each["name"]: each.get("valueFrom") for each in container(objects(api_key="sk-0123456789"))["env"]}
    assert references["VLLM_API_KEY"]["secretKeyRef"]["name"] == "vllm"
    assert references["HF_TOKEN"]["secretKeyRef"]["optional"] is True


def test_the_probe_covers_a_slow_start() -> None:
    small, large = container(objects("Qwen/Qwen3-0.6B")), container(objects("Qwen/Qwen3-32B", gpu="H200"))
    allowed = [
        each["startupProbe"]["periodSeconds"] * each["startupProbe"]["failureThreshold"] for each in (small, large)
    ]
    assert 410 <= allowed[0] < 440
    assert allowed[1] == pytest.approx(61.0 / 0.15 + 410, abs=20)


def test_gpus_shared_memory_and_the_card_are_those_of_the_plan() -> None:
    found = objects("meta-llama/Llama-3.3-70B-Instruct", gpu="4x H100", tensor_parallel_size=4)
    pod = found["Deployment"]["spec"]["template"]["spec"]
    assert container(found)["resources"]["limits"] == {"nvidia.com/gpu": "4"}
    assert pod["nodeSelector"] == {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}
    assert {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "8Gi"}} in pod["volumes"]
    assert found["PersistentVolumeClaim"]["spec"]["resources"]["requests"] == {"storage": "200Gi"}


def test_a_card_of_amd_gets_its_image_and_resource_and_no_label_of_nvidia() -> None:
    found = objects(gpu="MI300X")
    assert container(found)["image"] == "vllm/vllm-openai-rocm:v0.28.0"
    assert container(found)["resources"]["limits"] == {"amd.com/gpu": "1"}
    assert "nodeSelector" not in found["Deployment"]["spec"]["template"]["spec"]


def test_a_model_in_a_folder_is_mounted_where_it_is(tmp_path: Path) -> None:
    from kvroom.models.catalogue import find

    entry = find("Qwen/Qwen3-0.6B")
    assert entry is not None
    (tmp_path / "config.json").write_text(json.dumps(dict(entry.config)))
    found = objects(str(tmp_path))
    assert "PersistentVolumeClaim" not in found
    volume = {"name": "weights", "hostPath": {"path": str(tmp_path), "type": "Directory"}}
    assert volume in found["Deployment"]["spec"]["template"]["spec"]["volumes"]


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"model": "meta-llama/Llama-3.1-405B", "gpu": "RTX 3060 12GB"}, "no flag makes it start"),
        (
            {"model": "Qwen/Qwen3-235B-A22B", "gpu": "H100", "tensor_parallel_size": 8, "pipeline_parallel_size": 4},
            "32 GPUs",
        ),
        ({"gpu": "MI300X", "vllm": "0.10.0"}, "No image of vLLM 0.10.0 for cards of AMD"),
    ],
)
def test_what_cannot_be_written_is_one_clear_error(asked: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        objects(**asked)


def test_an_unknown_kind_names_those_that_are_known() -> None:
    plan = kvroom.plan("Qwen/Qwen3-0.6B", gpu="RTX 4090", offline=True, learned=False)
    with pytest.raises(UsageError, match="compose, k8s"):
        emit(plan, "nomad")


def test_the_head_says_how_many_cards_it_is_for() -> None:
    plan = kvroom.plan("Qwen/Qwen3-32B", gpu="2x H100", vllm="0.28.0", offline=True, tensor_parallel_size=2)

    assert emit(plan, "k8s").startswith("# kvroom: fits on 2 x NVIDIA H100 80GB HBM3, vLLM 0.28.0: ")
