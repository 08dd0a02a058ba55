"""The inner names of vLLM that the tracing leans on are where each release is said to have them.

``src/kvroom/tracing/internals.json`` names them; the sources of a release are read, nothing is imported.
"""

from __future__ import annotations

import ast
import json
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest

import kvroom.tracing
from tests.engine import environment

pytestmark = pytest.mark.engine

TABLE = json.loads((Path(kvroom.tracing.__file__).parent / "internals.json").read_text())


def release(version: str) -> tuple[int, ...]:
    """A version as numbers, ``0.10.2`` as (0, 10, 2)."""
    return tuple(int(part) for part in version.split("+", maxsplit=1)[0].split(".")[:3])


TREES = {version: tree for version, tree in environment.trees().items() if release(version) >= release(TABLE["since"])}


def expected(entry: dict[str, Any], version: str) -> bool:
    """Whether the release is one that should have the entry's name."""
    at = release(version)
    since, until = entry.get("since"), entry.get("until")
    return (since is None or at >= release(since)) and (until is None or at < release(until))


@lru_cache(maxsize=64)
def module(tree: Path, name: str) -> ast.Module | None:
    """The syntax tree of a module, None where the release has no such file."""
    base = tree.joinpath(*name.split("."))
    for path in (base.with_suffix(".py"), base / "__init__.py"):
        if path.is_file():
            return ast.parse(path.read_text())
    return None


def bound(body: list[ast.stmt]) -> dict[str, ast.stmt]:
    """The names that statements bind, those inside of ``if``, ``try`` and ``with`` too."""
    names: dict[str, ast.stmt] = {}
    for statement in body:
        match statement:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                names[statement.name] = statement
            case ast.Import() | ast.ImportFrom():
                names |= {(each.asname or each.name): statement for each in statement.names}
            case ast.Assign():
                names |= {each.id: statement for target in statement.targets for each in _targets(target)}
            case ast.AnnAssign():
                names |= {each.id: statement for each in _targets(statement.target)}
            case ast.If() | ast.Try() | ast.With():
                handlers = [inner for each in getattr(statement, "handlers", []) for inner in each.body]
                for part in (statement.body, getattr(statement, "orelse", []), handlers):
                    names |= bound(part)
    return names


def _targets(node: ast.expr) -> list[ast.Name]:
    return [each for each in ast.walk(node) if isinstance(each, ast.Name)]


def has_member(tree: Path, owner: ast.ClassDef, home: ast.Module, member: str) -> bool:
    """Whether a class or one of its bases defines ``member`` or sets it on ``self``."""
    if member in bound(owner.body):
        return True
    for node in ast.walk(owner):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and node.attr == member:
            return True
    for base in owner.bases:
        name = base.id if isinstance(base, ast.Name) else None
        found = bound(home.body).get(name or "")
        if isinstance(found, ast.ClassDef) and has_member(tree, found, home, member):
            return True
        if isinstance(found, ast.ImportFrom) and found.module:
            other = module(tree, found.module)
            inner = bound(other.body).get(name or "") if other else None
            if other and isinstance(inner, ast.ClassDef) and has_member(tree, inner, other, member):
                return True
    return False


def problem(tree: Path, where: str) -> str:
    """Why ``module:name`` or ``module:Class.member`` is not there, empty where it is."""
    name, _, attribute = where.partition(":")
    home = module(tree, name)
    if home is None:
        return f"there is no module {name}"
    if not attribute:
        return ""
    first, _, member = attribute.partition(".")
    found = bound(home.body).get(first)
    if found is None:
        return f"{name} has no {first}"
    if member and isinstance(found, ast.ClassDef) and not has_member(tree, found, home, member):
        return f"{name}:{first} has no {member}"
    return ""


@lru_cache(maxsize=8)
def registered_operators(tree: Path) -> frozenset[str]:
    """The names under which a release registers opaque operators of its own."""
    names = set()
    for path in (tree / "vllm").rglob("*.py"):
        text = path.read_text(errors="replace")
        if "direct_register_custom_op" in text:
            for node in ast.walk(ast.parse(text)):
                if isinstance(node, ast.Call):
                    names |= _registered_by(node)
    return frozenset(names)


def _registered_by(call: ast.Call) -> set[str]:
    function = call.func.id if isinstance(call.func, ast.Name) else getattr(call.func, "attr", "")
    if function != "direct_register_custom_op":
        return set()
    given = [each.value for each in call.keywords if each.arg == "op_name"] or call.args[:1]
    return {each.value for each in given if isinstance(each, ast.Constant)}


@pytest.mark.parametrize("version", TREES)
def test_the_names_that_the_tracing_uses_are_there(version: str) -> None:
    """Each name is found where the table says, and not where the table says that the release lacks it."""
    tree = TREES[version]
    moved = []
    for entry in TABLE["names"]:
        found = problem(tree, entry["where"])
        if expected(entry, version) and found:
            moved.append(f"{found} ({entry['for']})")
        elif not expected(entry, version) and not found:
            moved.append(f"{entry['where']} is there, outside of since/until ({entry['for']})")
    assert not moved, f"vLLM {version} moved what the tracing leans on:\n  " + "\n  ".join(moved)


@pytest.mark.parametrize("version", TREES)
def test_the_operators_whose_body_is_run_are_registered(version: str) -> None:
    """A mixture of experts would lose its workspaces if its operator were named otherwise."""
    present = registered_operators(TREES[version])
    moved = [
        f"{entry['operator']} is {'not ' if expected(entry, version) else ''}registered"
        for entry in TABLE["operators"]
        if expected(entry, version) != (entry["operator"] in present)
    ]
    assert not moved, f"vLLM {version} renamed opaque operators:\n  " + "\n  ".join(moved)
