"""A file to its documents. One that is broken is reported, and the others are still read."""

from __future__ import annotations

import re
from itertools import pairwise

from kvroom.errors import short
from kvroom.launches.launch import Unread
from kvroom.launches.manifests.templates import masked
from kvroom.launches.manifests.tree import Document, Tree

_BREAK = re.compile(r"^(?:---|\.\.\.)(?=\s|$)", re.MULTILINE)
_EMPTY = re.compile(r"(?:\s|#.*(?:\n|$)|%.*(?:\n|$))*", re.ASCII)
_CONCERNS = ("vllm", "llm_configs", "servingenginespec", "llminferenceservice", "huggingface", "hf://")
_REFERRED = re.compile(r"^kind:\s*['\"]?(?:ConfigMap|(?:Cluster)?ServingRuntime)\b", re.MULTILINE)
_SCHEMA = "\nkind: CustomResourceDefinition"
_MOST_DOCUMENTS = 5000


def concerns_vllm(text: str) -> bool:
    """Whether a manifest, or a document of one, can start vLLM at all; what cannot is not parsed."""
    lowered = text.lower()
    return any(word in lowered for word in _CONCERNS)


def read_documents(text: str, source: str) -> tuple[list[Tree], list[Unread]]:
    """The documents of ``text`` as trees, and those that are not YAML with the reason and the line.

    Documents that neither speak of vLLM nor may be referred to are left out.
    """
    rows = tuple(text.split("\n"))
    trees: list[Tree] = []
    broken: list[Unread] = []
    for part, offset in _parts(text):
        concerns = concerns_vllm(part)
        if _SCHEMA in part or not (concerns or _REFERRED.search(part)):
            continue
        if len(trees) + len(broken) >= _MOST_DOCUMENTS:
            broken.append(Unread(source, offset + 1, f"The file holds more than {_MOST_DOCUMENTS:,} documents."))
            break
        plain, actions = masked(part, offset + 1) if "{{" in part else (part, ())
        document = Document(rows, offset, actions)
        tree = _compose(plain, document, source)
        if isinstance(tree, Unread):
            broken += [tree] if concerns else []
        elif tree:
            trees.append(tree)
    return trees, broken


def _parts(text: str) -> list[tuple[str, int]]:
    """The documents' texts, each with the number of lines before it; the marks between them are blanked."""
    places = [0, *(match.start() for match in _BREAK.finditer(text)), len(text)]
    parts = []
    line = 0
    for number, (start, end) in enumerate(pairwise(places)):
        part = text[start:end]
        if number:
            part = "   " + part[3:]
        if not _EMPTY.fullmatch(part):
            parts.append((part, line))
        line += text.count("\n", start, end)
    return parts


def _compose(text: str, document: Document, source: str) -> Tree | Unread:
    import yaml

    try:
        node = yaml.compose(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = document.offset + 1 + (mark.line if mark is not None else 0)
        problem = getattr(error, "problem", None) or getattr(error, "reason", None) or "it cannot be parsed"
        said = f"The document that begins on line {document.offset + 1} is not YAML: {short(str(problem))}."
        cure = "Correct it there; the other documents of the file were read."
        if document.actions:
            wants = ", ".join(dict.fromkeys(each.wants for each in document.actions[:5]))
            said = f"The template that begins on line {document.offset + 1} is not YAML without its values ({wants})."
            cure = "Render it first: helm template CHART | kvroom check -"
        return Unread(source, line, said, cure)
    except RecursionError:
        return Unread(source, document.offset + 1, "The document is nested too deeply to be read.")
    return Tree(document, node)
