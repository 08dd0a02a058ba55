"""The ledger of a start as a file (see docs/plugin.md): what later plans and people with a question need, no more."""

from __future__ import annotations

import errno
import json
import re
import stat
from datetime import UTC, datetime
from pathlib import Path
from secrets import token_hex
from typing import Any

from kvroom.errors import KvroomError
from kvroom.learned.key import fingerprint, kept_env, kept_words, world
from kvroom.learned.measurement import SIZES, Measurement, cleaned
from kvroom.plugin.account import Account, how_chosen, settled
from kvroom.plugin.start import Start
from kvroom.redaction import anonymous
from kvroom.version import __version__


def record(start: Start, account: Account | None, refusal: str | None, now: datetime | None = None) -> dict[str, Any]:
    """The start for JSON, of schema ``kvroom/1``; nothing in it says where or by whom it was started."""
    written = (now or datetime.now(UTC)).astimezone(UTC).isoformat(timespec="seconds")
    measurement, why = _measurement(start, account, written)
    return {
        "schema": "kvroom/1",
        "kind": "start",
        "kvroom_version": __version__,
        "vllm_version": start.version,
        "written": written,
        "outcome": "started" if refusal is None else "refused",
        "message": None if refusal is None else anonymous(refusal),
        "model": _public(start.model),
        "device": {"name": start.device or None, "platform": start.platform or None, "count": start.gpus},
        "attention": {"backends": list(start.backends), "how": how_chosen(start, account)},
        "settings": {name: _cleaned(value) for name, value in start.flags.items()},
        "env": kept_env(start.env),
        "ledger": dict(start.sizes),
        "workers": [{name: _cleaned(value) for name, value in each.items()} for each in start.workers],
        "pool": dict(start.pool) or None,
        "agrees": account.agrees if account is not None else None,
        "remedies": [
            {"flags": list(each.flags), "why": each.why, "price": each.price}
            for each in (account.remedies if account is not None else ())
        ],
        "problems": [anonymous(problem) for problem in start.problems],
        "measurement": measurement.data() if measurement is not None else None,
        "no_measurement": why or None,
    }


def _measurement(start: Start, account: Account | None, written: str) -> tuple[Measurement | None, str]:
    """What ``kvroom learn`` keeps of it; else why it cannot."""
    if account is None:
        return None, "the model or the release is none that kvroom can price."
    sizes = {name: start.sizes[name] for name in SIZES if name in start.sizes}
    if not {"weights", "activation"} <= sizes.keys():
        return None, "no profile was taken." if start.platform != "cpu" else "a CPU has no such ledger."
    try:
        setup = settled(account, start)
    except KvroomError as error:
        return None, error.problem
    args = setup.args
    return cleaned(
        Measurement(
            gpu=setup.machine.device.name,
            gpus=world(args),
            release=setup.release,
            model=_public(start.model),
            shape=fingerprint(setup.shape, setup.draft),
            words=kept_words(args, account.prediction.settings, setup.release),
            env=kept_env(start.env),
            backend=", ".join(start.backends[:1]),
            sizes=sizes,
            learned=written,
        )
    ), ""


def write(name: str, data: dict[str, Any]) -> None:
    """Put ``data`` in the file ``name``, whole or not at all; OSError where that cannot be."""
    path = Path(name).expanduser().resolve()
    if path.exists() and not stat.S_ISREG(path.stat().st_mode):
        raise OSError(errno.EINVAL, "it is no regular file")
    temporary = path.with_name(f".{path.name[:100]}-{token_hex(6)}")
    try:
        with temporary.open("x", encoding="utf-8", errors="replace") as file:
            json.dump(data, file, indent=1)
            file.write("\n")
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


_HUB = re.compile(r"models--([\w.-]+?)--([\w.-]+)[/\\]snapshots")
"""A model in the hub's cache."""


def _public(model: str) -> str:
    """The model's id; of a path its last part."""
    cached = _HUB.search(model)
    if cached:
        return f"{cached[1]}/{cached[2]}"
    if model.count("/") <= 1 and not model.startswith((".", "/", "~")) and "\\" not in model:
        return anonymous(model)
    return anonymous(model.replace("\\", "/").rstrip("/").rpartition("/")[2] or "a folder")


def _cleaned(value: Any) -> Any:
    if isinstance(value, str):
        return _public(value)
    if isinstance(value, dict):
        return {str(name): _cleaned(each) for name, each in value.items()}
    return [_cleaned(each) for each in value] if isinstance(value, list | tuple) else value
