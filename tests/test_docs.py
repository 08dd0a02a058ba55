"""The documents say what the program does: generated pages are fresh, links lead somewhere, commands exist."""

from __future__ import annotations

import re
import runpy
import shlex
from pathlib import Path

import pytest

from kvroom.cli.main import app, run

ROOT = Path(__file__).parent.parent
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *(ROOT / "docs").rglob("*.md")])


def test_the_flags_page_is_fresh() -> None:
    page = runpy.run_path(str(ROOT / "scripts" / "flags_page.py"))["flags_page"]()
    assert (ROOT / "docs" / "flags.md").read_text("utf-8") == page, "run: python scripts/flags_page.py > docs/flags.md"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_output_shown_is_what_the_command_prints(page: Path) -> None:
    filled = runpy.run_path(str(ROOT / "scripts" / "examples.py"))["filled"]
    text = page.read_text("utf-8")
    assert text == filled(text), "run: python scripts/examples.py"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#:]+?)(?:#[^)]*)?\)", page.read_text("utf-8")):
        assert (page.parent / target).exists(), target


def _commands(page: Path) -> list[str]:
    text = page.read_text("utf-8").replace("\\\n", " ")
    return [line.strip().removeprefix("$ ") for line in text.splitlines() if re.match(r"^    (\$ )?kvroom ", line)]


EXAMPLES = [(page.name, command) for page in PAGES for command in _commands(page) if "..." not in command]


@pytest.mark.parametrize(("page", "command"), EXAMPLES, ids=[command[:60] for _, command in EXAMPLES])
@pytest.mark.usefixtures("store_file")
def test_every_command_in_the_documents_runs(page: str, command: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = shlex.split(command)[1:]
    if "--" in words:
        words.insert(words.index("--"), "--offline")
    elif words[0] in {"plan", "diagnose", "learn"}:
        words.append("--offline")
    assert run(words) in {0, 1, 3}, capsys.readouterr().err


def test_every_command_is_documented() -> None:
    readme = (ROOT / "README.md").read_text("utf-8")
    for command in app.commands:
        assert f"kvroom {command}" in readme


def test_the_accuracy_page_is_fresh() -> None:
    page = runpy.run_path(str(ROOT / "scripts" / "accuracy_page.py"))["accuracy_page"]()
    assert (ROOT / "docs" / "accuracy.md").read_text("utf-8") == page, (
        "run: python scripts/accuracy_page.py > docs/accuracy.md"
    )
