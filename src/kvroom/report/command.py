"""A command line for people to copy."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from kvroom.redaction import clean_command


def show_command(tokens: Sequence[str]) -> str:
    """``tokens`` as one shell line, quoted where a shell would split or expand them, secrets masked."""
    return shlex.join(clean_command(tokens))
