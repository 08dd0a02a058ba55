"""vLLM's rules by release: what is data in ``data/vllm/rules/*.json``, looked up once per release.

Each file maps a rule's name to a list of entries, oldest first::

    "gpu_memory_utilization": [
      {"since": "0.4.3", "value": 0.9, "source": "config/cache.py: CacheConfig"},
      {"since": "0.20.0", "value": 0.92, "source": "config/cache.py: CacheConfig"}
    ]

An entry holds from ``since`` until the next entry's ``since``. ``source`` names the file and
function of vLLM that the rule mirrors. Code asks ``rules_for(release)["name"]`` and never
compares versions itself.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from kvroom.vllm.releases import Release, parse_release

OLDEST = Release(0, 4, 0)
"""The first release whose rules are known."""
NEWEST = Release(0, 33, 0)
"""The last release whose rules are known; newer ones get its rules, and are told so."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule as it stands in one release."""

    name: str
    since: Release
    value: Any
    source: str


class Rules:
    """The rules of one release; ``rules["name"]`` is the value, ``rules.rule("name")`` the whole entry."""

    def __init__(self, release: Release, entries: dict[str, Rule]) -> None:
        self.release = release
        self._entries = entries
        self._values = {name: rule.value for name, rule in entries.items()}

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def rule(self, name: str) -> Rule:
        """The entry in force under ``name``, with its source."""
        return self._entries[name]


@cache
def _tables() -> dict[str, tuple[Rule, ...]]:
    tables: dict[str, tuple[Rule, ...]] = {}
    for path in sorted(files("kvroom.data.vllm").joinpath("rules").iterdir(), key=lambda p: p.name):
        if not path.name.endswith(".json"):
            continue
        for name, entries in json.loads(path.read_text("utf-8")).items():
            if name.startswith("_"):
                continue
            tables[name] = tuple(
                Rule(name, parse_release(entry["since"]), entry["value"], entry.get("source", "")) for entry in entries
            )
    return tables


@cache
def rules_for(release: Release) -> Rules:
    """The rules in force in ``release``; outside OLDEST..NEWEST those of the nearest release known."""
    nearest = min(max(release, OLDEST), NEWEST)
    chosen: dict[str, Rule] = {}
    for name, entries in _tables().items():
        current = [rule for rule in entries if rule.since <= nearest] or [entries[0]]
        chosen[name] = current[-1]
    return Rules(nearest, chosen)
