"""What people have (commands, scripts, manifests) to the launches they make."""

from __future__ import annotations

from kvroom.launches.files import read_file
from kvroom.launches.launch import Launch
from kvroom.launches.read import read_command, read_words

__all__ = ["Launch", "read_command", "read_file", "read_words"]
