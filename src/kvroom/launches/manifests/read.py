"""One manifest, whatever it is, to launches: documents, and for each the reader of its kind."""

from __future__ import annotations

from collections.abc import Mapping

from kvroom.errors import KvroomError
from kvroom.launches.launch import Found, Unread
from kvroom.launches.manifests.compose import compose_launches, is_compose
from kvroom.launches.manifests.documents import read_documents
from kvroom.launches.manifests.helm_values import is_values, values_launches
from kvroom.launches.manifests.objects import object_launches
from kvroom.launches.manifests.tree import TooMuch, Tree

_REFERRED = frozenset({"ConfigMap", "ServingRuntime", "ClusterServingRuntime"})


def read_manifest(text: str, source: str = "", *, variables: Mapping[str, str] | None = None) -> list[Found]:
    """What the manifest ``text`` starts: launches, launches of which something is missing, and parts not readable.

    ``variables`` are those of the ``.env`` file beside a compose file. In the order of the lines; empty for a
    manifest that starts no vLLM. Never raises for what a file holds.
    """
    trees, broken = read_documents(text, source)
    found: list[Found] = list(broken)
    shared: dict[str, dict[str, Tree]] = {}
    for tree in trees:
        if tree.get("kind").text in _REFERRED:
            shared.setdefault(tree.get("kind").text, {})[tree.get("metadata", "name").text] = tree
    for tree in trees:
        try:
            found += _launches(tree, source, variables or {}, shared)
        except TooMuch:
            found.append(Unread(source, tree.line, "Its anchors and merges (<<) expand without end.", "Write it out."))
        except KvroomError as error:
            found.append(Unread(source, tree.line, error.problem, error.cure))
        except RecursionError:
            found.append(Unread(source, tree.line, "The document is nested too deeply to be read."))
    return sorted(found, key=lambda each: each.line)


def _launches(
    tree: Tree, source: str, variables: Mapping[str, str], shared: Mapping[str, Mapping[str, Tree]]
) -> list[Found]:
    if is_compose(tree):
        return compose_launches(tree, source, variables)
    if is_values(tree):
        return values_launches(tree, source)
    return object_launches(tree, source, shared)
