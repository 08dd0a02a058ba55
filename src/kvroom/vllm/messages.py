"""How each release writes numbers into its log."""

from __future__ import annotations

from kvroom.units import GIB
from kvroom.vllm.rules import Rules


def gib_in_log(n_bytes: float, rules: Rules) -> str:
    """``n_bytes`` as this release prints GiB: always two decimals to 0.13, rounded since (``16.0``).

    Source: utils: GiB(), utils/mem_utils.py: format_gib.

    >>> from kvroom.vllm.releases import Release
    >>> from kvroom.vllm.rules import rules_for
    >>> [gib_in_log(16 * GIB, rules_for(Release(0, minor, 0))) for minor in (13, 14)]
    ['16.00', '16.0']
    """
    if rules["gib_in_log"] == "round":
        return str(round(n_bytes / GIB, 2))
    return f"{n_bytes / GIB:.2f}"
