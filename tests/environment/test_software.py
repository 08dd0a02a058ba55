from __future__ import annotations

from pathlib import Path

import pytest
from tests.environment.fakes import FakePackages, sources

from kvroom.environment.software import MAIN, read_software
from kvroom.environment.sources import local_sources
from kvroom.version import __version__

TORCH = "__version__ = '2.9.0+cu128'\ncuda: Optional[str] = '12.8'\nhip: Optional[str] = None\n"


def test_versions_come_from_metadata_and_torch_says_what_it_was_built_for(tmp_path: Path) -> None:
    packages = FakePackages({"vllm": "0.28.0", "torch": "2.9.0", "ray": "2.48"}, {"torch/version.py": TORCH})
    files = {"usr/local/cuda/version.json": '{"cuda": {"name": "CUDA SDK", "version": "12.8.1"}}'}
    software = read_software(sources(tmp_path, files, packages=packages))
    versions = dict(software.packages)
    assert (versions["vllm"], versions["torch"], versions["ray"]) == ("0.28.0", "2.9.0", "2.48")
    assert versions["flash-attn"] is None
    assert "lmcache" not in versions
    assert (software.torch_cuda, software.torch_hip, software.cuda_toolkit) == ("12.8", None, "12.8.1")
    assert (software.kvroom, software.python) == (__version__, "3.12.3")


@pytest.mark.parametrize("toolkit", ["", "{", "[]", '{"cuda": 1}', '{"cuda": {"version": 12}}', "[" * 100_000])
def test_damaged_files_are_unknown(tmp_path: Path, toolkit: str) -> None:
    packages = FakePackages({"torch": "2.9.0"}, {"torch/version.py": "cuda = \x00"})
    software = read_software(sources(tmp_path, {"usr/local/cuda/version.json": toolkit}, packages=packages))
    assert (software.torch_cuda, software.cuda_toolkit) == (None, None)


def test_the_packages_of_this_python_are_read_without_importing_them() -> None:
    packages = local_sources().packages
    assert packages.version("click")
    assert packages.version("no-such-package-here") is None
    assert "def" in packages.text("click", "click/core.py")
    assert packages.text("click", "click/none.py") == packages.text("no-such-package-here", "x") == ""
    assert [name for name, _ in read_software(local_sources()).packages[: len(MAIN)]] == list(MAIN)
