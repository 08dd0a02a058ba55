"""A release's own transformers, before the base's, where the base's is not one that the release knew.

Most releases ask for no newest version, and fail on some models with what came later: vLLM 0.26 and older
cannot read Gemma 4 or OLMo 3.1 through transformers 5.19. So they get the newest of their time.
"""

from __future__ import annotations

import shutil
from importlib import metadata
from pathlib import Path

from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

from kvroom.tracing.build import Site, site_packages, versions_in
from kvroom.tracing.keep import interpreter
from kvroom.tracing.wheels import Wheel, applicable

_NAME = "transformers"
_TIMES = (
    ("2025-07-22", "4.53.3"),
    ("2025-07-29", "4.54.1"),
    ("2025-08-22", "4.55.4"),
    ("2025-08-29", "4.56.0"),
    ("2025-10-14", "4.57.1"),
    ("2026-01-16", "4.57.6"),
    ("2026-04-13", "5.5.4"),
    ("2026-04-23", "5.6.2"),
    ("2026-04-28", "5.7.0"),
    ("2026-05-13", "5.8.1"),
    ("2026-05-20", "5.9.0"),
    ("2026-06-10", "5.11.0"),
    ("2026-06-15", "5.12.1"),
    ("2026-07-11", "5.13.1"),
    ("2026-07-16", "5.14.1"),
    ("2026-08-19", "5.15.1"),
    ("2026-08-26", "5.16.1"),
    ("2026-09-09", "5.17.0"),
    ("2026-09-30", "5.18.0"),
    ("2026-10-06", "5.19.0"),
)
"""When versions of transformers were built (mostly the last of each minor one), from their wheels."""
_ROUNDS = 3
"""A package asks for others, these for more; what is deeper is the base's."""


def wanted_transformers(choice: str, wheel: Wheel, base: Path) -> str:
    """What to install beside the tree, as pip takes it; empty where the base's transformers will do.

    ``choice`` is ``auto``, ``base`` or a version.
    """
    if choice == "base":
        return ""
    if choice != "auto":
        return f"{_NAME}=={choice}"
    asked = SpecifierSet(wheel.asked(_NAME))
    then = _of_its_time(wheel.made, asked)
    text = versions_in(site_packages(base)).get(_NAME)
    if text is not None and asked.contains(text, prereleases=True):
        known = then is None or Version(text).release[:2] <= Version(then).release[:2]
        if known:
            return ""
    return f"{_NAME}{asked & SpecifierSet(f'<={then}') if then else asked}"


def _of_its_time(made: str, asked: SpecifierSet) -> str | None:
    """The newest version there was the day before ``made`` among those asked for; None where unknown."""
    before = [version for day, version in _TIMES if day < made and asked.contains(version)]
    return before[-1] if before else None


def add_transformers(site: Site, base: Path, requirement: str, target: Path) -> None:
    """Install ``requirement`` into ``target``, with what it needs and the base has in other versions only."""
    site.need_room(0.4)
    held = versions_in(site_packages(base))
    wanted = [requirement]
    for _ in range(_ROUNDS):
        task = f"Installing {', '.join(wanted)}"
        place = ("--target", str(target), "--upgrade")
        site.pip(interpreter(base), task, "install", "--no-deps", *place, *wanted)
        wanted = _lacking(target, held | versions_in(target))
        if not wanted:
            break
    shutil.rmtree(target / "bin", ignore_errors=True)


def _lacking(target: Path, held: dict[str, str]) -> list[str]:
    """What the packages in ``target`` ask for and ``held`` has in other versions only."""
    found: dict[str, SpecifierSet] = {}
    for one in metadata.distributions(path=[str(target)]):
        for need in applicable(one.requires or ()):
            name = canonicalize_name(need.name)
            if not (name in held and need.specifier.contains(held[name], prereleases=True)):
                found[name] = found.get(name, SpecifierSet()) & need.specifier
    return [f"{name}{specifier}" for name, specifier in sorted(found.items())]
