"""How people write GPUs, how many of them, and sizes of memory."""

from __future__ import annotations

import re

from kvroom.errors import DeviceError, UsageError
from kvroom.units import GIB, KIB, MIB

_COUNT_FIRST = re.compile(r"(-?[0-9]{1,4})\s*(?:[x\u00d7*]\s*|\s+)(?=\S*[^\W\d_]|\d{4})(.+)", re.IGNORECASE)
_COUNT_LAST = re.compile(r"(.*[\w)])\s*[x\u00d7*:]\s*(-?[0-9]{1,4})", re.IGNORECASE)
MOST_GPUS = 4096

_NOISE = frozenset(
    {"nvidia", "geforce", "rtx", "gtx", "tesla", "amd", "radeon", "rx", "instinct", "intel", "arc"}
    | {"gpu", "gpus", "graphics", "generation", "edition", "corporation", "card", "shared"}
)
_SPLIT = (
    (re.compile(r"\((?:r|tm)\)"), " "),
    (re.compile(r"[^a-z0-9.]+"), " "),
    (re.compile(r"\b(rtx|gtx|rx|titan|quadro)(?=[a-z]?\d)"), r"\1 "),
    (re.compile(r"\b(\d{4})tisuper\b"), r"\1 ti super"),
    (re.compile(r"\b(\d{4})(ti|super|xtx|xt|d)\b"), r"\1 \2"),
    (re.compile(r"\b(\d+) ?(?:gib|gb|g)\b"), r"\1gb"),
)

_UNITS = {
    "": GIB, "g": GIB, "gi": GIB, "gib": GIB, "gb": 10**9,
    "m": MIB, "mi": MIB, "mib": MIB, "mb": 10**6,
    "t": KIB * GIB, "ti": KIB * GIB, "tib": KIB * GIB, "tb": 10**12,
    "b": 1,
}  # fmt: skip
_MEMORY = re.compile(r"([+-]?(?:\d{1,3}(?:,\d{3})+|\d+)?(?:\.\d*)?)\s*([a-z]*)", re.IGNORECASE | re.ASCII)


def words(name: str) -> frozenset[str]:
    """The words of ``name`` that tell GPUs apart: case, punctuation and brand names are dropped.

    >>> sorted(words("NVIDIA GeForce RTX 4090D")), sorted(words("Tesla-V100-SXM2-16GB"))
    (['4090', 'd'], ['16gb', 'sxm2', 'v100'])
    """
    text = name.lower()
    for pattern, replacement in _SPLIT:
        text = pattern.sub(replacement, text)
    return frozenset(word.strip(".") for word in text.split()) - _NOISE - {""}


def parse_gpu(text: str) -> tuple[str, int]:
    """The name of the GPU and how many of it: ``4x RTX 3090``, ``RTX 4090x2``, ``2xH100``, ``A100:8``.

    An x that belongs to the name stays there (RX 7900 XTX, MI300X, SXM4).
    Raises DeviceError for an empty name or a count below 1.

    >>> parse_gpu("NVIDIA-H100-80GB-HBM3x8"), parse_gpu("RX 580"), parse_gpu("2x4090")
    (('NVIDIA-H100-80GB-HBM3', 8), ('RX 580', 1), ('4090', 2))
    """
    text = text.strip()
    name, count = text, "1"
    first, last = _COUNT_FIRST.fullmatch(text), _COUNT_LAST.fullmatch(text)
    if first and not _is_name_alone(text):
        count, name = first.groups()
    elif last and re.search(r"\d", last[1]):
        name, count = last.groups()
    if not name.strip() or len(text) > 200:
        raise DeviceError(f"'{text[:60]}' does not name a GPU.", "Write it as in --gpu 'RTX 4090' or 2xH100.")
    if not 1 <= int(count) <= MOST_GPUS:
        raise DeviceError(f"{count} GPUs in '{text}'.", f"The count is a whole number from 1 to {MOST_GPUS}.")
    return name.strip(), int(count)


def _is_name_alone(text: str) -> bool:
    """Whether the number that ``text`` starts with belongs to the name: ``4090 Laptop``, ``5060 Ti``."""
    match = re.match(r"(\d+)\s+(\S+)", text)
    if match is None:
        return False
    return len(match[1]) == 4 or match[2].lower() in {"ti", "super", "laptop", "ada"}


def parse_memory(text: str, *, least: int = 1) -> int:
    """Bytes of a size such as ``24GiB``, ``24GB``, ``24564MiB`` or ``24``; commas are for thousands only.

    A bare number, ``G`` and ``Gi`` are GiB, ``GB`` is decimal, and likewise for M and T.
    Raises UsageError for anything else, and for a size below ``least`` bytes.

    >>> parse_memory("24"), parse_memory("24GB"), parse_memory("24564 MiB")
    (25769803776, 24000000000, 25757220864)
    """
    match = _MEMORY.fullmatch(text.strip()) if len(text) <= 40 else None
    unit = _UNITS.get(match[2].lower()) if match else None
    try:
        number = float(match[1].replace(",", "")) if match else 0.0
    except ValueError:
        unit = None
    if unit is None:
        raise UsageError(f"'{text[:40]}' is not a size of memory.", "Write it as in 24GiB or 24564MiB.")
    size = int(number * unit)
    if not least <= size <= KIB * KIB * GIB:
        raise UsageError(f"'{text}' is too little or too much memory.", "Write a size as in 24GiB.")
    return size
