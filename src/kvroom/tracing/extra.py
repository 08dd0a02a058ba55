"""A release's own transformers, before the base's, where the base's is not what the release asks for."""

from __future__ import annotations

import shutil
from importlib import metadata
from pathlib import Path

from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from kvroom.tracing.build import Site, site_packages, versions_in
from kvroom.tracing.keep import interpreter
from kvroom.tracing.wheels import Wheel, applicable

_NAME = "transformers"
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
    has = versions_in(site_packages(base)).get(_NAME)
    return "" if has and asked.contains(has, prereleases=True) else f"{_NAME}{asked}"


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
