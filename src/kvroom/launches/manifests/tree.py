"""YAML as a tree that knows its lines. Aliases are shared, never copied, so that no file grows when it is read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kvroom.launches.manifests.templates import Action, unmasked
from kvroom.launches.variables import Word

if TYPE_CHECKING:
    from yaml.nodes import Node

_MERGE = "tag:yaml.org,2002:merge"
_NULL = "tag:yaml.org,2002:null"
_MOST_MERGED = 200_000
"""Entries that ``<<`` may bring into the maps of one document."""


class TooMuch(Exception):
    """The merges of a document name more entries than any file has use for."""


@dataclass(slots=True)
class Document:
    """One document of a file: where it begins, what was templated in it, and its maps once they are merged."""

    rows: tuple[str, ...]
    """The lines of the whole file."""
    offset: int
    """Lines before the document."""
    actions: tuple[Action, ...] = ()
    maps: dict[int, dict[str, tuple[Node, Node]]] = field(default_factory=dict)
    merged: int = 0


@dataclass(frozen=True, slots=True)
class Tree:
    """A place in a document; one that is not there has no node, and all below it are not there either."""

    document: Document
    node: Node | None = None
    key: Node | None = None

    def __bool__(self) -> bool:
        return self.node is not None and self.node.tag != _NULL

    @property
    def line(self) -> int:
        """Line of the file, of the key where there is one; 0 for what is not there."""
        node = self.key or self.node
        return 0 if node is None else node.start_mark.line + 1 + self.document.offset

    @property
    def end(self) -> int:
        """The last line of the file that belongs to it."""
        if self.node is None:
            return 0
        mark = self.node.end_mark
        return max(self.line, mark.line + (mark.column > 0) + self.document.offset)

    def get(self, *path: str) -> Tree:
        """What lies below under the keys of ``path``."""
        place = self
        for name in path:
            found = place._map().get(name)
            place = Tree(self.document) if found is None else Tree(self.document, found[1], found[0])
        return place

    def items(self) -> Iterator[tuple[str, Tree]]:
        """The entries of a map, merges included."""
        for name, (key, value) in self._map().items():
            yield name, Tree(self.document, value, key)

    def elements(self) -> Iterator[Tree]:
        """The elements of a list."""
        if self.kind == "list" and self.node is not None:
            for each in self.node.value:
                yield Tree(self.document, each)

    @property
    def kind(self) -> str:
        """``map``, ``list``, ``text``, or empty where nothing is."""
        name = type(self.node).__name__
        return {"MappingNode": "map", "SequenceNode": "list", "ScalarNode": "text"}.get(name, "") if self else ""

    @property
    def text(self) -> str:
        """A scalar's text as it was written, empty for anything else."""
        return str(self.node.value) if self.kind == "text" and self.node is not None else ""

    @property
    def word(self) -> Word:
        """The text as a word whose templated parts are unknown."""
        return unmasked(self.text, self.document.actions)

    @property
    def shown(self) -> str:
        """The text for people, cut where it is long."""
        return self.word.text[:120]

    @property
    def whole(self) -> int | None:
        """A whole number, None for anything else."""
        text = self.text.strip()
        return int(text) if text.isascii() and text.isdigit() and len(text) < 12 else None

    @property
    def true(self) -> bool:
        """Whether it says yes."""
        return self.text.lower() in {"true", "yes", "on"}

    def words(self) -> list[Word]:
        """The texts of a list."""
        return [each.word for each in self.elements()]

    def actions(self) -> list[Action]:
        """What was templated on its lines."""
        return [each for each in self.document.actions if self.line <= each.line <= self.end]

    def _map(self) -> dict[str, tuple[Node, Node]]:
        if self.kind != "map":
            return {}
        return _entries(self.node, self.document, ())


def _entries(node: Any, document: Document, inside: tuple[int, ...]) -> dict[str, tuple[Node, Node]]:
    """The entries of a map, those of ``<<`` first, so that its own win."""
    known = document.maps.get(id(node))
    if known is not None:
        return known
    own: dict[str, tuple[Node, Node]] = {}
    merged: dict[str, tuple[Node, Node]] = {}
    for key, value in node.value:
        if key.tag == _MERGE:
            for source in value.value if type(value).__name__ == "SequenceNode" else [value]:
                if type(source).__name__ == "MappingNode" and id(source) not in inside and source is not node:
                    found = _entries(source, document, (*inside, id(node)))
                    document.merged += len(found)
                    if document.merged > _MOST_MERGED:
                        raise TooMuch
                    merged = {**found, **merged}
        elif isinstance(key.value, str):
            own[key.value] = (key, value)
    document.maps[id(node)] = {**merged, **own}
    return document.maps[id(node)]
