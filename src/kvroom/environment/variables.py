"""The environment variables that steer vLLM and what it stands on, without secrets and private details."""

from __future__ import annotations

import re

from kvroom.environment.private import shareable
from kvroom.environment.sources import Sources
from kvroom.errors import short
from kvroom.redaction import MASK

_RELEVANT = re.compile(
    r"(?:VLLM|CUDA|NVIDIA|NCCL|PYTORCH|TORCH|TORCHINDUCTOR|TRITON|FLASHINFER|HF|HIP|HSA|ROCR|RAY)_\w+"
    r"|MAX_JOBS|OMP_NUM_THREADS|LD_LIBRARY_PATH|LD_PRELOAD",
    re.ASCII,
)
_SECRET = re.compile(r"(?:TOKEN|KEY|SECRET|PASSWORD|PASSWD|PASS|CREDENTIALS?|AUTH)(?:_|$)")
_PLACE = re.compile(r"(?:^|_)(?:IPS?|HOSTS?|HOSTNAME|HOSTID|ADDR|ADDRESS|ADDRESSES|USER|USERNAME|EMAIL)$")
_HARMLESS = frozenset({"", "0", "1", "true", "false", "localhost", "127.0.0.1", "0.0.0.0", "::", "::1", "auto"})  # noqa: S104
_OUR_OWN = frozenset({"HF_HUB_VERBOSITY", "HF_HUB_DISABLE_PROGRESS_BARS"})
"""The command line sets them for itself, and no launch depends on them."""
_LONGEST = 300
"""Characters of a value that are shown."""


def read_variables(sources: Sources) -> tuple[tuple[str, str], ...]:
    """Names and values, sorted; the value of a secret, or of what names a machine or user, is masked whole."""
    found = ((name, value) for name, value in sources.env.items() if _RELEVANT.fullmatch(name) and name not in _OUR_OWN)
    return tuple((name, _shown(name, value, sources)) for name, value in sorted(found))


def _shown(name: str, value: str, sources: Sources) -> str:
    if (_SECRET.search(name) or _PLACE.search(name)) and value.lower() not in _HARMLESS:
        return MASK
    return short(shareable(value, sources.owner), _LONGEST)
