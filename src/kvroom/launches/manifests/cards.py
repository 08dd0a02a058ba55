"""The card that a node selector leaves, and how many GPUs a container asks for."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kvroom.launches.manifests.tree import Tree

_GPU = re.compile(r"(?:nvidia\.com|amd\.com)/gpu(?:\.shared)?|gpu\.intel\.com/(?:xe|i915)")
_SLICE = re.compile(r"nvidia\.com/mig-(?P<profile>[\w.]+)")
_SHARED = re.compile(r"-SHARED$")
_MIG = re.compile(r"-MIG-[\w.]+$")
RAY_LABEL = "ray.io/accelerator-type"
_MOST_CARDS = 4


@dataclass(frozen=True, slots=True)
class Cards:
    """The cards that labels leave, and what is to be known about them."""

    names: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    part: str = ""
    """Why a GPU is less than a card there, empty where it is a whole one."""


@dataclass(frozen=True, slots=True)
class _Labels:
    named: frozenset[str]
    exact: dict[tuple[str, str], tuple[str, ...]]
    beginnings: tuple[tuple[str, str, tuple[str, ...]], ...]


@cache
def _labels() -> _Labels:
    data = json.loads(files("kvroom.data.devices").joinpath("node_labels.json").read_text("utf-8"))
    exact: dict[tuple[str, str], tuple[str, ...]] = {}
    beginnings = []
    for entry in data["labels"]:
        for key in entry["keys"]:
            for value, cards in entry["values"].items():
                names = (cards,) if isinstance(cards, str) else tuple(cards)
                if value.endswith("*"):
                    beginnings.append((key, value[:-1], names))
                else:
                    exact[key, value] = names
    return _Labels(frozenset(data["named"]["keys"]), exact, tuple(beginnings))


def card_of_label(key: str, value: str) -> tuple[str, ...]:
    """The cards that a node with label ``key=value`` may have, by name; none where the label says nothing.

    >>> card_of_label("cloud.google.com/gke-accelerator", "nvidia-l4"), card_of_label("nvidia.com/gpu.product", "X-1")
    (('L4',), ('X-1',))
    """
    labels = _labels()
    if key in labels.named:
        return (_MIG.sub("", _SHARED.sub("", value)).replace("_", " "),) if value else ()
    if (key, value) in labels.exact:
        return labels.exact[key, value]
    for name, beginning, cards in labels.beginnings:
        if name == key and value.startswith(beginning):
            return cards
    return ()


def cards_of(pod: Tree) -> Cards:
    """The cards of the nodes that ``pod``'s selector and required affinity leave."""
    required = pod.get("affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution")
    return cards_left(pod.get("nodeSelector"), required.get("nodeSelectorTerms"))


def cards_left(selector: Tree, terms: Tree) -> Cards:
    """The cards that a ``nodeSelector`` and ``nodeSelectorTerms`` leave; the selector is asked first."""
    wanted = [(key, (value.text,)) for key, value in selector.items()]
    choices: list[str] = []
    for term in terms.elements():
        chosen = _of_terms(_expressions(term))
        choices += chosen.names
    found = _of_terms(wanted)
    names = found.names or tuple(dict.fromkeys(choices))[:_MOST_CARDS]
    notes = list(found.notes)
    if len(names) > 1:
        notes.append(f"Its nodes may have any of these cards: {', '.join(names)}. Each was checked.")
    return Cards(names, tuple(notes), found.part)


def _expressions(term: Tree) -> list[tuple[str, tuple[str, ...]]]:
    return [
        (each.get("key").text, tuple(value.text for value in each.get("values").elements()))
        for each in term.get("matchExpressions").elements()
        if each.get("operator").text == "In"
    ]


def _of_terms(terms: Sequence[tuple[str, tuple[str, ...]]]) -> Cards:
    """The cards that all of ``terms`` leave: the label that says it most narrowly decides."""
    notes: list[str] = []
    part = ""
    best: tuple[str, ...] = ()
    for key, values in terms:
        names = tuple(dict.fromkeys(name for value in values for name in card_of_label(key, value)))[:_MOST_CARDS]
        if names and (not best or len(names) < len(best)):
            best = names
        if any(_SHARED.search(value) for value in values) and key in _labels().named:
            notes.append("The node's GPUs are shared (time slicing): what other pods hold is missing from this.")
        if any(_MIG.search(value) for value in values):
            part = "The node's GPUs are cut into MIG slices."
    return Cards(best, tuple(notes), part)


def gpus_of(resources: Tree) -> tuple[int | None, int, str]:
    """How many GPUs ``resources`` ask for (None: none), the line, and why each is less than a card, if it is."""
    for part in ("limits", "requests"):
        for key, value in resources.get(part).items():
            if _GPU.fullmatch(key):
                return value.whole, value.line, ""
            sliced = _SLICE.fullmatch(key)
            if sliced:
                return value.whole, value.line, f"It asks for MIG slices ({sliced['profile']})."
    return None, 0, ""
