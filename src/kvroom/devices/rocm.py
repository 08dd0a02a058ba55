"""The AMD GPUs of this machine, as ``rocm-smi`` lists them.

This is an edge module: it runs that program, if it is there, and waits ten seconds at most.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from typing import Any

from kvroom.devices.inventory import Gpu, Inventory
from kvroom.errors import DeviceError

_ARGUMENTS = ("--showproductname", "--showmeminfo", "vram", "--showdriverversion", "--json")
_NONE = "There is no AMD GPU here"


class RocmProbe:
    """Asks ``rocm-smi``. ``run`` gives what it prints, or raises OSError."""

    def __init__(self, run: Callable[[], str] | None = None) -> None:
        self._run = run or _run

    def inventory(self) -> Inventory:
        """The AMD GPUs here, without the processes on them; raises DeviceError when there is none."""
        try:
            printed = self._run()
            # Warnings may stand before the JSON.
            data = json.loads(printed[printed.index("{") :])
        except OSError as error:
            raise DeviceError(f"{_NONE} ({error.strerror or error}).") from error
        except (ValueError, RecursionError) as error:
            raise DeviceError("rocm-smi prints no JSON that can be read.") from error
        cards = {name: card for name, card in data.items() if name.startswith("card") and isinstance(card, dict)}
        if not cards:
            raise DeviceError(f"{_NONE}.")
        system = data.get("system")
        driver = system.get("Driver version") if isinstance(system, dict) else None
        gpus = (_gpu(index, card) for index, card in enumerate(cards.values()))
        return Inventory("AMD", tuple(gpus), str(driver) if driver else None)


def _gpu(index: int, card: dict[str, Any]) -> Gpu:
    fields = {name.lower(): str(value) for name, value in card.items()}
    total, used = (_size(fields.get(f"vram total {name}memory (b)")) for name in ("", "used "))
    return Gpu(
        index=index,
        name=fields.get("card series") or fields.get("device name") or "AMD GPU",
        total_bytes=total,
        used_bytes=used,
        free_bytes=max(total - used, 0) if total is not None and used is not None else None,
        architecture=fields.get("gfx version"),
    )


def _size(text: str | None) -> int | None:
    return int(text) if text and text.isascii() and text.isdecimal() and len(text) < 20 else None


def _run() -> str:
    program = shutil.which("rocm-smi")
    if program is None:
        raise OSError("rocm-smi is not installed")
    try:
        done = subprocess.run(  # noqa: S603 - the arguments are the constants above
            [program, *_ARGUMENTS], capture_output=True, timeout=10, check=True, stdin=subprocess.DEVNULL
        )
    except subprocess.SubprocessError as error:
        raise OSError("rocm-smi does not answer") from error
    return done.stdout.decode("utf-8", "replace")
