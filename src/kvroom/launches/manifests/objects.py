"""Kubernetes objects to launches: whatever holds a pod, and the controllers that make one server of several pods."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from kvroom.launches.launch import Found
from kvroom.launches.manifests.kserve import inference_service, llm_inference_service
from kvroom.launches.manifests.pods import Around, pod_launches
from kvroom.launches.manifests.rayservice import ray_service
from kvroom.launches.manifests.tree import Tree

_MOST_NODES = 200_000
"""Nodes of one document that are looked at for pods."""
_TEMPLATES = frozenset(
    {"ServingRuntime", "ClusterServingRuntime", "LLMInferenceServiceConfig", "CustomResourceDefinition"}
)
"""Kinds that start nothing by themselves: other objects use them, or describe them."""


def object_launches(root: Tree, source: str, shared: Mapping[str, Mapping[str, Tree]]) -> list[Found]:
    """The launches of one Kubernetes object, or of each in a ``List``.

    ``shared`` holds the file's objects that others refer to, by kind and name.
    """
    kind = root.get("kind").text
    if kind == "List" or (kind.endswith("List") and root.get("items")):
        return [found for item in root.get("items").elements() for found in object_launches(item, source, shared)]
    if kind in _TEMPLATES:
        return []
    around = Around(source, f"{kind} {root.get('metadata', 'name').shown}".strip(), shared.get("ConfigMap", {}))
    if kind == "LeaderWorkerSet":
        return _leader_worker_set(root, around)
    if kind == "InferenceService":
        return inference_service(root, around, shared)
    if kind == "LLMInferenceService":
        return llm_inference_service(root, around)
    if kind == "RayService":
        return ray_service(root, around)
    return [found for pod in pods_in(root) for found in pod_launches(pod, around)]


def pods_in(root: Tree) -> Iterator[Tree]:
    """Every map with a list of ``containers``: the pods of any kind of object, each once, in order."""
    seen: set[int] = set()
    waiting = [root]
    while waiting and len(seen) < _MOST_NODES:
        place = waiting.pop()
        if place.node is None or id(place.node) in seen:
            continue
        seen.add(id(place.node))
        if place.kind == "map":
            if place.get("containers").kind == "list":
                yield place
            waiting += reversed([value for _, value in place.items()])
        elif place.kind == "list":
            waiting += reversed(list(place.elements()))


def _leader_worker_set(root: Tree, around: Around) -> list[Found]:
    """The server of a LeaderWorkerSet: the leader's where it has a template of its own, else every pod's.

    The controller sets the group's size and address (leaderworkerset.x-k8s.io/v1, LeaderWorkerTemplate).
    """
    group = root.get("spec", "leaderWorkerTemplate")
    size = group.get("size").whole or 1
    given = {"LWS_GROUP_SIZE": str(size), "LWS_WORKER_INDEX": "0"}
    whole = Around(around.source, around.kind, around.configs, size, given)
    for part in ("leaderTemplate", "workerTemplate"):
        found = pod_launches(group.get(part, "spec"), whole)
        if found:
            return found
    return []
