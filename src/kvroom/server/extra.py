"""The packages of the extra ``verify``, loaded when a server is asked."""

from __future__ import annotations

import importlib
from typing import Any

from kvroom.errors import UsageError

_PACKAGES = {"httpx": "httpx", "prometheus_client.parser": "prometheus-client"}


def required(module: str) -> Any:
    """The module; UsageError that says what to install where it is missing."""
    try:
        return importlib.import_module(module)
    except ImportError:
        raise UsageError(
            f"Asking a server needs the package {_PACKAGES[module]}, which is not installed.",
            "Install it with: pip install 'kvroom[verify]'",
        ) from None
