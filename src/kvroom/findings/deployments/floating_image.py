"""KVR185: the image's tag moves, so that the release is not known."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from kvroom.findings.finding import Finding, Rule, Severity, explanation

if TYPE_CHECKING:
    from kvroom.findings.deployments.place import Placed

RULE = Rule(
    "KVR185",
    "image-tag-moves",
    Severity.NOTE,
    "The image's tag names whatever is newest, and memory needs differ by release.",
    explanation(
        what="Looks for an image of vLLM without a tag, or with one such as `latest` or `nightly`.",
        why="""
            Defaults, the activation peak and what is counted in the budget change from release to release.
            A restart on another node may pull another release, which may not fit any more.
            The rules used here are those of the newest release known unless `--vllm` names one.
            """,
        example="`image: vllm/vllm-openai:latest`.",
        cure="Pin the release, as in `vllm/vllm-openai:v0.28.0`, or the digest.",
        since="All releases.",
        references="Kubernetes: Images",
    ),
)
_MOVES = re.compile(r":(?:latest|nightly|main|master|dev|stable)\b")


def find(placed: Placed) -> Iterator[Finding]:
    """The finding with the image."""
    image = placed.pod.image
    if "vllm" not in image.lower() or "@" in image or "{{" in image or "$" in image:
        return
    if ":" in image.rsplit("/", 1)[-1] and not _MOVES.search(image):
        return
    release = placed.prediction.setup.release
    yield RULE.found(
        f"{image} may be any release; the rules here are those of {release}.",
        evidence=(placed.shown("image", image),),
        advice=(f"Pin it, e.g. :v{release}.",),
    )
