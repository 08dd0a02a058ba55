"""Where a model's description comes from: a folder, a config.json, the catalogue, or the hub.

The only module of ``models`` that touches the file system (and, through ``Hub``, the network). It reads
config.json, hf_quant_config.json and safetensors headers, and nothing else.
"""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from kvroom.errors import BadConfig, UnknownModel, UsageError
from kvroom.files import read_limited, reason
from kvroom.models import catalogue
from kvroom.models.checkpoint import MAX_HEADER, Checkpoint, from_headers, from_index
from kvroom.models.config import read_config
from kvroom.models.hub import CONFIG_CURE, Hub, HuggingFaceHub
from kvroom.models.parse import MAX_BYTES, parse_object

if TYPE_CHECKING:
    from kvroom.models.shape import ModelShape

GRADES = {
    "A": "published config",
    "A-excerpt": "published config, trimmed by its keeper",
    "A-derived": "published config of a quantised sibling",
    "B": "class defaults that fit the checkpoint; lengths and rotary scaling may differ",
    "C": "converted from another tool's fields; some may be missing",
}
"""What each grade of the catalogue promises."""
INDEX = "model.safetensors.index.json"
T = TypeVar("T")
REPO_ID = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?", re.ASCII)
REMOTE = ("s3://", "gs://", "az://", "hf://", "http://", "https://", "hf.co/", "huggingface.co/")


def load_model(
    reference: str,
    *,
    offline: bool = False,
    hub: Hub | None = None,
    revision: str | None = None,
    overrides: Mapping[str, Any] | None = None,
) -> ModelShape:
    """The model that ``reference`` names: a folder, a config.json, or a model id.

    An id is looked up in the catalogue first, unless a ``revision`` is asked for and the hub may be used;
    then on the hub (its local cache only when ``offline``). ``overrides`` are ``--hf-overrides``.
    Raises UsageError for an empty name, UnknownModel where nothing can be read, BadConfig where what
    was read cannot be used; each says what to do.
    """
    name = reference.strip()
    if not name:
        raise UsageError("No model was named.", "Give a model id (Qwen/Qwen3-8B), a folder or a config.json.")
    path = _path(name)
    if path is not None:
        return _from_path(path, name, overrides)
    _refuse_what_is_no_id(name)
    offline = offline or os.environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "TRUE", "YES", "ON")
    entry = catalogue.find(name)
    if entry is not None and (revision is None or offline):
        return read_config(
            entry.config,
            name=entry.name,
            source=f"kvroom's catalogue ({GRADES[entry.grade]}), copied from {entry.source}",
            hf_quant_config=entry.hf_quant_config,
            overrides=overrides,
        )
    return _from_hub(name, hub or HuggingFaceHub(offline=offline), revision, overrides)


def raw_config(
    reference: str, *, offline: bool = False, hub: Hub | None = None, revision: str | None = None
) -> tuple[Mapping[str, Any], Mapping[str, Any] | None]:
    """config.json and hf_quant_config.json of the model that ``reference`` names, as they are.

    Raises as ``load_model`` does.
    """
    path = _path(reference.strip())
    if path is not None:
        folder = path if path.is_dir() else path.parent
        config = path / "config.json" if path.is_dir() else path
        quant = folder / "hf_quant_config.json"
        return _file(config), _file(quant) if quant.exists() else None
    _refuse_what_is_no_id(reference.strip())
    entry = catalogue.find(reference)
    if entry is not None and (revision is None or offline):
        return entry.config, entry.hf_quant_config
    hub = hub or HuggingFaceHub(offline=offline)
    data = hub.read(reference, "config.json", revision)
    if data is None:
        raise UnknownModel(f"{reference} has no config.json, which kvroom reads.")
    found = hub.read(reference, "hf_quant_config.json", revision)
    named = f"config.json of {reference}"
    return parse_object(data, named), parse_object(found, f"hf_quant_{named}") if found else None


def _file(path: Path) -> Mapping[str, Any]:
    try:
        return parse_object(read_limited(path, MAX_BYTES), str(path))
    except OSError as error:
        raise UnknownModel(f"{path} cannot be read: {reason(error)}.", "Give the path of a config.json.") from None


def _path(name: str) -> Path | None:
    """The file or folder ``name``, None when there is none."""
    try:
        path = Path(name).expanduser()
        return path if path.exists() else None
    except (OSError, ValueError, RuntimeError):  # too long for a path, a NUL in it, the home of nobody
        return None


def _refuse_what_is_no_id(name: str) -> None:
    shown = name if len(name) <= 80 else name[:77] + "..."
    if name.lower().endswith(".gguf") or re.fullmatch(r"[\w.-]+/[\w.-]+:[\w.-]+", name):
        raise UnknownModel(
            f"{shown} is a GGUF file, which holds no config.json.",
            "Name the original model and add --assume-quantization gguf.",
        )
    if name.lower().startswith(REMOTE):
        raise UnknownModel(f"{shown} is an address, not a model id.", f"Write organisation/name.\n{CONFIG_CURE}")
    if name.startswith((".", "/", "~", "\\")) or name.endswith((".json", "/")) or name.count("/") > 1:
        raise UnknownModel(f"There is no file or folder {shown}.", "Check the path.")
    if not REPO_ID.fullmatch(name) or len(name) > 96:
        raise UnknownModel(f"'{shown}' is neither a file nor a model id.", "Write a model id as organisation/name.")


def _from_hub(name: str, hub: Hub, revision: str | None, overrides: Mapping[str, Any] | None) -> ModelShape:
    try:
        data = hub.read(name, "config.json", revision)
    except UnknownModel as error:
        raise _with_nearest(name, error) from None
    if data is None:
        raise _with_nearest(
            name,
            UnknownModel(f"{name} has no config.json, which kvroom reads.", _no_config_cure(hub, name, revision)),
        )
    config = parse_object(data, f"config.json of {name}")
    quant = hub.read(name, "hf_quant_config.json", revision)
    checkpoint = _optional(lambda: _hub_checkpoint(name, hub, revision))
    shape = read_config(
        config,
        name=name,
        source=f"the Hugging Face hub: {name}" + (f" at {revision}" if revision else ""),
        hf_quant_config=parse_object(quant, f"hf_quant_config.json of {name}") if quant else None,
        overrides=overrides,
        checkpoint_bytes=checkpoint.total_bytes if checkpoint else None,
        checkpoint_bytes_by_dtype=checkpoint.by_dtype if checkpoint else (),
    )
    pooled = _optional(lambda: hub.read(name, "modules.json", revision)) is not None
    return replace(shape, is_pooling=True) if pooled else shape


def _hub_checkpoint(name: str, hub: Hub, revision: str | None) -> Checkpoint | None:
    index = hub.read(name, INDEX, revision)
    return from_index(parse_object(index, INDEX)) if index is not None else hub.single_file(name, revision)


def _optional(ask: Callable[[], T | None]) -> T | None:
    """The answer to a question that a plan can do without."""
    try:
        return ask()
    except (UnknownModel, BadConfig):
        return None


def _no_config_cure(hub: Hub, name: str, revision: str | None) -> str:
    adapter = _optional(lambda: hub.read(name, "adapter_config.json", revision))
    if adapter is not None:
        return _adapter_cure(adapter)
    return "Is it a model that vLLM serves, not a GGUF file, a data set or a Space?"


def _adapter_cure(adapter: bytes) -> str:
    base = parse_object(adapter, "adapter_config.json").get("base_model_name_or_path")
    named = f": {base}" if isinstance(base, str) and len(base) < 200 else ""
    return f"It is a LoRA adapter; plan its base model{named} with --enable-lora."


def _with_nearest(name: str, error: UnknownModel) -> UnknownModel:
    close = catalogue.nearest(name)
    if not close:
        return error
    return UnknownModel(error.problem, f"{error.cure}\nIn the catalogue, nearest: {', '.join(close)}")


def _from_path(path: Path, name: str, overrides: Mapping[str, Any] | None) -> ModelShape:
    folder = path if path.is_dir() else path.parent
    config_path = path / "config.json" if path.is_dir() else path
    if path.is_file() and path.suffix.lower() != ".json":
        raise UnknownModel(f"{name} is a file but no config.json.", "Give the model's folder or its config.json.")
    if not config_path.is_file():
        adapter = _read(path / "adapter_config.json")
        cure = _adapter_cure(adapter) if adapter else "Is it the model's folder, and was it downloaded completely?"
        if (path / "params.json").is_file():
            cure = "It has Mistral's params.json; get the repository's config.json too."
        raise UnknownModel(f"The folder {name} has no config.json.", cure)
    data = _read(config_path, required=True)
    quant = _read(folder / "hf_quant_config.json") if path.is_dir() else None
    checkpoint = _folder_checkpoint(folder) if path.is_dir() else None
    shape = read_config(
        parse_object(data or b"", str(config_path)),
        name=name,
        source=str(config_path),
        hf_quant_config=parse_object(quant, "hf_quant_config.json") if quant else None,
        overrides=overrides,
        checkpoint_bytes=checkpoint.total_bytes if checkpoint else None,
        checkpoint_bytes_by_dtype=checkpoint.by_dtype if checkpoint else (),
    )
    pooled = path.is_dir() and (path / "modules.json").is_file()
    return replace(shape, is_pooling=True) if pooled else shape


def _read(path: Path, *, required: bool = False) -> bytes | None:
    """The contents of a small file, None when it is not there; UnknownModel when it may not be read."""
    try:
        if not required and not path.is_file():
            return None
        return read_limited(path, MAX_BYTES)
    except (OSError, ValueError) as error:
        raise UnknownModel(f"{path} cannot be read: {reason(error)}.", "Check the file and its permissions.") from None


def _folder_checkpoint(folder: Path) -> Checkpoint | None:
    """Sizes from the headers of the folder's shards, else from its index; None when it holds neither."""
    shards = [each for each in sorted(folder.glob("*.safetensors")) if not each.name.startswith("consolidated")]
    index = _optional(lambda: _index(folder))
    if shards and (index is None or _complete(folder, index)):
        headers = [_header(each) for each in shards]
        if all(header is not None for header in headers):
            return from_headers(header for header in headers if header is not None)
    return from_index(index) if index is not None else None


def _index(folder: Path) -> Mapping[str, Any] | None:
    data = _read(folder / INDEX)
    return parse_object(data, INDEX) if data else None


def _complete(folder: Path, index: Mapping[str, Any]) -> bool:
    files = index.get("weight_map")
    if not isinstance(files, Mapping):
        return False
    names = {name for name in files.values() if isinstance(name, str) and "/" not in name}
    return all((folder / name).is_file() for name in names)


def _header(path: Path) -> Mapping[str, Any] | None:
    """The JSON header of a safetensors file; None when the file is not one."""
    try:
        with path.open("rb") as file:
            length = struct.unpack("<Q", file.read(8))[0]
            if not 0 < length <= min(MAX_HEADER, path.stat().st_size - 8):
                return None
            return parse_object(file.read(length), path.name)
    except (OSError, struct.error, BadConfig):
        return None
