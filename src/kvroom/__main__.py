"""``python -m kvroom``."""

from __future__ import annotations

from kvroom.cli.main import entry

if __name__ == "__main__":
    entry()
