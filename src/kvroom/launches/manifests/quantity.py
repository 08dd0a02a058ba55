"""Kubernetes' quantities and docker's sizes as bytes."""

from __future__ import annotations

import re

from kvroom.units import GIB, KIB, MIB

_QUANTITY = re.compile(r"(\d{1,15}(?:\.\d{1,9})?)\s*([A-Za-z]*)", re.ASCII)
_KUBERNETES = {
    "": 1, "k": 10**3, "m": 0, "M": 10**6, "G": 10**9, "T": 10**12,
    "Ki": KIB, "Mi": MIB, "Gi": GIB, "Ti": KIB * GIB,
}  # fmt: skip
_DOCKER = {"": 1, "b": 1, "k": KIB, "kb": KIB, "m": MIB, "mb": MIB, "g": GIB, "gb": GIB}


def quantity(text: str) -> int | None:
    """Bytes of a quantity such as ``16Gi``; None where it says nothing.

    >>> quantity("16Gi"), quantity("1G"), quantity("")
    (17179869184, 1000000000, None)
    """
    return _bytes(text, _KUBERNETES)


def docker_size(text: str) -> int | None:
    """Bytes of docker's and compose's sizes, whose units are powers of 1024; None where it says nothing.

    >>> docker_size("16gb"), docker_size("64m")
    (17179869184, 67108864)
    """
    return _bytes(text.lower(), _DOCKER)


def _bytes(text: str, units: dict[str, int]) -> int | None:
    match = _QUANTITY.fullmatch(text.strip())
    if match is None or match[2] not in units:
        return None
    return int(float(match[1]) * units[match[2]])
