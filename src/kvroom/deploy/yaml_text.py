"""Plain data as YAML that people read: keys in their order, no anchors, lists of words in one line where short."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def yaml_text(documents: Sequence[Any], comments: Sequence[str]) -> str:
    """``documents`` as one YAML file that begins with ``comments``."""
    import yaml

    base = getattr(yaml, "CSafeDumper", yaml.SafeDumper)

    class Dumper(base):  # type: ignore[misc, valid-type]
        """A dumper that repeats what is used twice instead of naming it."""

        def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002
            """Always."""
            return True

    texts = [
        yaml.dump(each, Dumper=Dumper, sort_keys=False, default_flow_style=False, width=10_000, allow_unicode=True)
        for each in documents
    ]
    head = "".join(f"# {row}\n" for row in comments)
    return head + "---\n".join(texts)
