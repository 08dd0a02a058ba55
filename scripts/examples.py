"""Fill in the output under every ``$ kvroom ...`` line of the documents: ``python scripts/examples.py``.

In an indented block, a line ``$ kvroom COMMAND`` is followed by what the command prints. ``--check``
only says which page is stale.
"""

from __future__ import annotations

import contextlib
import io
import re
import shlex
import sys
from pathlib import Path

from kvroom.cli.main import run

ROOT = Path(__file__).parent.parent
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
BLOCK = re.compile(r"^(    \$ kvroom (?:[^\n]*\\\n)*[^\n]*\n)(?:(?:    [^\n]*)?\n)*", re.MULTILINE)

APART = {"plan": ["--offline", "--no-learned"], "check": ["--offline", "--no-learned"], "diagnose": ["--offline"]}
"""What keeps a command to the packaged facts: no hub, and nothing learned from this machine's logs."""


def output(command: str) -> str:
    """What ``command`` prints, read from the packaged catalogue only."""
    words = shlex.split(command.replace("\\\n", " ").strip().removeprefix("$ "))[1:]
    where = words.index("--") if "--" in words else len(words)
    words[where:where] = APART.get(words[0], [])
    text = io.StringIO()
    with contextlib.redirect_stdout(text):
        run(words)
    return text.getvalue()


def filled(page: str) -> str:
    """The page with fresh output in every block."""

    def fresh(match: re.Match[str]) -> str:
        lines = [f"    {line}".rstrip() for line in output(match.group(1)).splitlines()]
        return match.group(1) + "\n" + "\n".join(lines).rstrip() + "\n\n"

    return BLOCK.sub(fresh, page)


def main() -> int:
    """Rewrite the pages, or with ``--check`` exit 1 when one is stale."""
    stale = []
    for path in PAGES:
        before = path.read_text("utf-8")
        after = filled(before)
        if after != before:
            stale.append(path.name)
            if "--check" not in sys.argv:
                path.write_text(after, "utf-8")
    if stale:
        print(("stale: " if "--check" in sys.argv else "rewritten: ") + ", ".join(stale))
    return int(bool(stale) and "--check" in sys.argv)


if __name__ == "__main__":
    sys.exit(main())
