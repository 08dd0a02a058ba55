from __future__ import annotations

from pathlib import Path

import pytest
from tests.environment.fakes import OWNER, sources

from kvroom.environment.private import shareable
from kvroom.environment.variables import read_variables
from kvroom.redaction import MASK


def shown(root: Path, **env: str) -> dict[str, str]:
    return dict(read_variables(sources(root, env=env)))


def test_only_relevant_variables_are_shown_and_in_order(tmp_path: Path) -> None:
    env = {
        "VLLM_USE_V1": "1",
        "PATH": "/usr/bin",
        "HOSTNAME": "gpunode7",
        "AWS_SECRET_ACCESS_KEY": "x",
        "CUDA_VISIBLE_DEVICES": "0,1",
        "MAX_JOBS": "4",
        "XVLLM_Y": "1",
        "MAX_JOBS_X": "1",
        "HF_HUB_VERBOSITY": "error",
    }
    assert list(shown(tmp_path, **env)) == ["CUDA_VISIBLE_DEVICES", "MAX_JOBS", "VLLM_USE_V1"]


@pytest.mark.parametrize(
    "name",
    """HF_TOKEN VLLM_API_KEY HF_HUB_TOKEN RAY_REDIS_PASSWORD VLLM_S3_SECRET_ACCESS_KEY_ID HF_AUTH
    VLLM_HOST_IP RAY_ADDRESS VLLM_DP_MASTER_IP NCCL_HOSTID VLLM_PORT_80_TCP_ADDR""".split(),
)
def test_secrets_and_places_are_masked_whole(tmp_path: Path, name: str) -> None:
    assert shown(tmp_path, **{name: "plain words, short"}) == {name: MASK}


@pytest.mark.parametrize("value", ["", "0", "1", "True", "127.0.0.1", "localhost"])
def test_values_that_tell_nothing_stay(tmp_path: Path, value: str) -> None:
    assert shown(tmp_path, VLLM_HOST_IP=value, HF_HUB_DISABLE_IMPLICIT_TOKEN=value) == {
        "VLLM_HOST_IP": value,
        "HF_HUB_DISABLE_IMPLICIT_TOKEN": value,
    }


@pytest.mark.parametrize(
    "value",
    [
        "/data/people/jane/hub",
        "/home/jane/.cache",
        "/lib:/home/jane/lib:/opt",
        "file:///home/jane/x",
        "/mnt/c/Users/jane/x",
        r"C:\Users\jane\models",
        "/scratch/jdoe/hub",
        "ray://gpunode7:10001",
        "gpunode7.corp.example",
        "GPUNODE7",
        "tcp://10.1.2.3:80",
        "10.1.2.3",
        "fe80::1c2:3ff:fe04:5",
        "[2001:db8::7]:29500",
        "https://hub.corp.example/api",
        "https://jane:pw@hub.corp.example",
        "jane@corp.example",
        '{"path": "/home/jane/plugin"}',
        "a\x1b[31mb\nc",
    ],
)
def test_nothing_private_is_left(tmp_path: Path, value: str) -> None:
    text = shown(tmp_path, VLLM_X=value)["VLLM_X"]
    for private in ("jane", "jdoe", "gpunode7", "corp", "10.1.2.3", "fe80", "2001", "pw", "\x1b", "\n"):
        assert private not in text.lower()


@pytest.mark.parametrize(
    "value",
    [
        "0,1,2",
        "/opt/lib:/usr/local/cuda/lib64",
        "https://hf-mirror.com",
        "https://huggingface.co/x",
        "http://127.0.0.1:8000",
        "cuda>=12.8 brand=tesla,driver>=470,driver<471",
        "9.0a 10.0+PTX",
        "mlx5_0:1,mlx5_1:1",
        "expandable_segments:True,max_split_size_mb:128",
        "12.8.1.005-1",
        "tcp://0.0.0.0:80",
        "/rooted/root.txt",
        "12:30:45",
    ],
)
def test_what_is_not_private_stays(tmp_path: Path, value: str) -> None:
    assert shown(tmp_path, VLLM_X=value) == {"VLLM_X": value}


def test_homes_become_a_tilde() -> None:
    text = shareable("/data/people/jane/a:/home/bob/b:" + "/ro" + "ot/c:/data/people/janet", OWNER)
    assert text == "~/a:~/b:~/c:/data/people/janet"


def test_long_values_are_cut(tmp_path: Path) -> None:
    assert len(shown(tmp_path, NVIDIA_REQUIRE_CUDA="cuda>=12 " * 1000)["NVIDIA_REQUIRE_CUDA"]) == 300
