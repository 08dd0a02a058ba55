"""What must never be printed or stored, in two levels.

``clean`` takes out secrets and terminal control codes: for everything that is printed or stored.
``anonymous`` takes out as well who and where: users, hosts, addresses; for what is made public.
The second level is loaded when it is asked for, so that starting stays cheap.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvroom.redaction.cleaning import UNSEEN, Cleaner, clean, clean_command
from kvroom.redaction.named import is_secret_flag, is_secret_name
from kvroom.redaction.tokens import MASK

if TYPE_CHECKING:
    from kvroom.redaction.identity import Anonymizer, anonymous

__all__ = [
    "MASK",
    "UNSEEN",
    "Anonymizer",
    "Cleaner",
    "anonymous",
    "clean",
    "clean_command",
    "is_secret_flag",
    "is_secret_name",
]


def __getattr__(name: str) -> object:
    if name in {"Anonymizer", "anonymous"}:
        from kvroom.redaction import identity

        return getattr(identity, name)
    raise AttributeError(name)
