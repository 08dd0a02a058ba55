"""What people have (commands, scripts) to the launches they make."""

from __future__ import annotations

from kvroom.launches.launch import Launch
from kvroom.launches.read import read_command, read_words

__all__ = ["Launch", "read_command", "read_words"]
