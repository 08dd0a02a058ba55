"""docs/rules.md says what the catalogue says."""

from __future__ import annotations

import re
from pathlib import Path

from kvroom.findings.catalogue import all_rules
from kvroom.findings.page import rules_page

PAGE = Path(__file__).parents[2] / "docs" / "rules.md"


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text("utf-8") == rules_page(), (
        "docs/rules.md is stale: run python -m kvroom.findings.page > docs/rules.md"
    )


def test_the_table_links_to_sections_that_exist() -> None:
    page = rules_page()
    links = re.findall(r"\]\(#([^)]+)\)", page)
    anchors = {heading.lower().replace(" ", "-") for heading in re.findall(r"^## (.+)$", page, re.MULTILINE)}
    assert len(links) == len(all_rules())
    assert set(links) == anchors
