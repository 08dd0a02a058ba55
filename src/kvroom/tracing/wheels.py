"""Reading a vLLM wheel: what it asks for, and its Python tree."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterable
from dataclasses import dataclass
from email.parser import HeaderParser
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from kvroom.errors import InstallError

_TREE = re.compile(r"vllm/.+\.(?:py|json|jinja2?|txt|ya?ml|toml|cfg|csv|typed)", re.DOTALL)
"""What is taken: Python and the data that it reads; no extension, kernel source or picture."""
_METADATA = re.compile(r"[^/]+\.dist-info/METADATA")
_ENTRY_POINTS = re.compile(r"[^/]+\.dist-info/entry_points\.txt")
_LARGEST_METADATA = 5_000_000
_NOT_NEEDED = re.compile(
    r"torch|torchvision|torchaudio|torchcodec|(pytorch-)?triton(-.*)?|intel-.*|nvidia-.*|cuda-.*|cupy-.*|flashinfer-.*"
    r"|xformers|deep-?gemm|tilelang|quack-kernels|fastsafetensors|runai-.*|tpu-.*|amd-.*|amdsmi|bitsandbytes"
)
"""torch and its companions, which come separately or must be absent, and what only a GPU can use."""


@dataclass(frozen=True, slots=True)
class Wheel:
    """A vLLM wheel on disk."""

    path: Path
    distribution: str
    version: str
    """Without a local part: ``+cpu`` would make vLLM choose the CPU."""
    made: str
    """The day it was built, ISO 8601."""
    requires: tuple[Requirement, ...]
    """What it asks for on this interpreter and machine, without extras."""

    def asked(self, name: str) -> str:
        """The versions of a package that it asks for, as a specifier; empty: any."""
        return ",".join(str(need.specifier) for need in self.requires if canonicalize_name(need.name) == name)

    def needed(self) -> list[str]:
        """What its Python tree imports, as pip takes it: its requirements without torch and the GPU's."""
        return [plain(need) for need in self.requires if not _NOT_NEEDED.fullmatch(canonicalize_name(need.name))]


def open_wheel(path: Path) -> Wheel:
    """Read the metadata of a wheel; InstallError where it is none."""
    try:
        with zipfile.ZipFile(path) as archive:
            text = _read(archive, _METADATA)
            made = "{:04}-{:02}-{:02}".format(*max(member.date_time for member in archive.infolist()))
    except (OSError, zipfile.BadZipFile, KeyError) as error:
        raise InstallError(f"{path.name} cannot be read as a wheel: {error}.", "Try again.") from None
    headers = HeaderParser().parsestr(text)
    name = headers.get("Name", "").strip()
    try:
        version = Version(headers.get("Version", "")).public
    except InvalidVersion:
        version = ""
    if not name or not version:
        raise InstallError(f"{path.name} does not say its name and version.", "Try again.")
    requires = applicable(headers.get_all("Requires-Dist") or ())
    return Wheel(path, canonicalize_name(name), version, made, requires)


def applicable(texts: Iterable[str]) -> tuple[Requirement, ...]:
    """The requirements among ``texts`` that hold on this interpreter and machine without any extra."""
    found = []
    for text in texts:
        try:
            need = Requirement(text)
        except InvalidRequirement:
            continue
        if need.marker is None or need.marker.evaluate({"extra": ""}):
            found.append(need)
    return tuple(found)


def plain(need: Requirement) -> str:
    """A requirement without its marker, which has been judged."""
    extras = f"[{','.join(sorted(need.extras))}]" if need.extras else ""
    return f"{need.name}{extras}{f' @ {need.url}' if need.url else need.specifier}"


def unpack_tree(wheel: Wheel, target: Path) -> None:
    """Write the Python tree of ``wheel`` to ``target``, with metadata under the name ``vllm``.

    A CPU wheel's distribution has another name, under which vLLM does not find its own version.
    Raises InstallError where the wheel holds no tree; OSError where it cannot be written.
    """
    with zipfile.ZipFile(wheel.path) as archive:
        members = [name for name in archive.namelist() if _TREE.fullmatch(name) and ".." not in name.split("/")]
        if "vllm/__init__.py" not in members:
            raise InstallError(f"{wheel.path.name} holds no Python code of vLLM.", "Install another release.")
        archive.extractall(target, members)
        info = target / f"vllm-{wheel.version}.dist-info"
        info.mkdir()
        head, blank, body = _read(archive, _METADATA).partition("\n\n")
        head = re.sub(r"(?m)^Name:.*$", "Name: vllm", head, count=1)
        head = re.sub(r"(?m)^Version:.*$", f"Version: {wheel.version}", head, count=1)
        (info / "METADATA").write_text(head + blank + body, "utf-8")
        try:
            (info / "entry_points.txt").write_text(_read(archive, _ENTRY_POINTS), "utf-8")
        except KeyError:
            return


def _read(archive: zipfile.ZipFile, pattern: re.Pattern[str]) -> str:
    """The text of the first member whose name matches; KeyError where none does."""
    for name in archive.namelist():
        if pattern.fullmatch(name):
            with archive.open(name) as file:
                return file.read(_LARGEST_METADATA).decode("utf-8", "replace").replace("\r\n", "\n")
    raise KeyError(f"it has no {pattern.pattern}")
