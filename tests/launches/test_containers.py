"""Container starts to launches."""

from __future__ import annotations

import pytest

from kvroom.launches import read_command
from kvroom.launches.containers import image_version

IMAGE = "vllm/vllm-openai:v0.28.0"


@pytest.mark.parametrize(
    "options",
    [
        "",
        "--runtime nvidia --gpus all",
        "-v ~/models:/models -p 8000:8000 --ipc=host",
        "-itd --rm --name vllm --shm-size 16g --ulimit memlock=-1 --network host",
        '--env "HF_TOKEN=$HF_TOKEN" --env-file .env -u 0:0 -w /app',
        "-p8000:8000 -eFOO=bar -it -v a:b",
        "--restart=unless-stopped --cap-add SYS_PTRACE --security-opt seccomp=unconfined --privileged",
        "--device /dev/kfd --device /dev/dri --group-add video --",
    ],
)
@pytest.mark.parametrize("runner", ["docker run", "sudo docker container run", "podman run", "nerdctl create"])
def test_options_of_the_container_are_skipped(runner: str, options: str) -> None:
    (launch,) = read_command(f"{runner} {options} {IMAGE} --model m -tp 2")
    assert launch.tokens == ("--model", "m", "-tp", "2")
    assert launch.version_hint == "0.28.0"


@pytest.mark.parametrize(
    ("gpus", "count"),
    [
        ("--gpus all", None),
        ("--gpus 2", 2),
        ("--gpus '\"device=0,1\"'", 2),
        ("--gpus device=3", 1),
        ("--gpus='\"device=GPU-aa,GPU-bb,GPU-cc\"'", 3),
        ("--gpus 'count=4,capabilities=gpu'", 4),
        ("--device nvidia.com/gpu=all", None),
        ("--device nvidia.com/gpu=0 --device nvidia.com/gpu=1", 2),
        ("-e CUDA_VISIBLE_DEVICES=0,1", 2),
    ],
)
def test_gpus_are_counted(gpus: str, count: int | None) -> None:
    (launch,) = read_command(f"docker run {gpus} {IMAGE} m")
    assert launch.gpu_hint == count


@pytest.mark.parametrize(
    ("image", "version"),
    [
        ("vllm/vllm-openai:v0.28.0", "0.28.0"),
        ("docker.io/vllm/vllm-openai:v0.11.0-x86_64", "0.11.0"),
        ("localhost:5000/vllm/vllm-openai:v0.9.2", "0.9.2"),
        ("vllm/vllm-openai:v0.28.0@sha256:0123", "0.28.0"),
        ("rocm/vllm:rocm6.3.1_vllm_0.8.5_20250513", "0.8.5"),
        ("vllm/vllm-openai:latest", None),
        ("vllm/vllm-openai:gptoss", None),
        ("vllm/vllm-openai", None),
        ("localhost:5000/vllm/vllm-openai", None),
    ],
)
def test_the_tag_names_the_version(image: str, version: str | None) -> None:
    assert image_version(image) == version


def test_environment_of_the_container_counts_and_the_hosts_does_not() -> None:
    (launch,) = read_command(f"export OUTSIDE=1\ndocker run -e VLLM_USE_V1=0 -e INHERITED --env-file x.env {IMAGE} m")
    assert launch.env == {"VLLM_USE_V1": "0"}
    assert any("INHERITED" in note for note in launch.notes)
    assert any("x.env" in note for note in launch.notes)


def test_a_shell_or_another_entrypoint_inside() -> None:
    for text in (
        f"docker run --entrypoint bash {IMAGE} -c 'vllm serve m'",
        f"docker run --entrypoint=/usr/local/bin/vllm {IMAGE} serve m",
        f"docker run --entrypoint python3 {IMAGE} -m vllm.entrypoints.openai.api_server m",
        "docker run rocm/vllm:rocm6.3.1_vllm_0.8.5_20250513 vllm serve m",
        "docker run rocm/vllm:rocm7.0_vllm_0.11.2 bash -c 'pip list && vllm serve m'",
    ):
        (launch,) = read_command(text)
        assert launch.tokens == ("m",)
        assert launch.version_hint in ("0.28.0", "0.8.5", "0.11.2")


def test_an_image_without_a_version_is_noted() -> None:
    (launch,) = read_command("docker run vllm/vllm-openai:latest m")
    assert launch.version_hint is None
    assert "does not say its vLLM version" in launch.notes[0]


@pytest.mark.parametrize(
    "text", ["docker ps", "docker run ubuntu ls", "docker run -it rocm/vllm:x bash", "docker run --gpus all"]
)
def test_other_containers_start_no_server(text: str) -> None:
    from kvroom.errors import UsageError

    with pytest.raises(UsageError, match="starts no vLLM server"):
        read_command(text)
