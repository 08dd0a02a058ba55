"""What to say of weights that are missing, or do not belong to the model's class."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from kvroom.findings.refusals.common import short

if TYPE_CHECKING:
    from kvroom.findings.case import Case
    from kvroom.logs.facts import Fact

Parts = tuple[str, str, tuple[str, ...]]
"""Title, reason, advice."""


def no_weights(case: Case, fact: Fact) -> Parts:  # noqa: ARG001
    """A folder or repository without weights."""
    path = short(fact.values["path"])
    return (
        f"{path} holds no weights that vLLM can load.",
        "It looks for *.safetensors, then *.bin or *.pt, as --load-format says.",
        (
            "Finish the download: the folder may hold only config.json, or Git LFS pointers of a few hundred bytes.",
            "For GGUF give the .gguf file itself; for a LoRA adapter serve its base model with --enable-lora.",
            "--load-format auto",
        ),
    )


def incomplete(case: Case, fact: Fact) -> Parts:  # noqa: ARG001
    """Tensors that the class needs and the checkpoint lacks."""
    names = re.findall(r"'([\w.]{3,200})'", fact.values["names"])
    some = f"{len(names):,} tensors ({short(names[0])}...)" if names else "tensors"
    return (
        f"The checkpoint lacks {some} which the model's class needs.",
        "The download is incomplete, the checkpoint belongs to another class, or it was saved without them.",
        (
            "Download again and compare the files with model.safetensors.index.json.",
            "Take the release of vLLM that the model card names.",
        ),
    )


def strange(case: Case, fact: Fact) -> Parts:
    """A tensor that the checkpoint has and the class does not know."""
    name = short(fact.values["name"])
    version = f" {case.release}" if case.release is not None else ""
    return (
        f"The checkpoint has a tensor {name} which the model's class in vLLM{version} does not know.",
        "The checkpoint is newer than this vLLM, or was quantised or fine-tuned into another layout.",
        (
            "Take a newer vLLM, or the release that the model card names.",
            "If it was quantised or merged by hand: compare its tensor names with those of the original model.",
        ),
    )


def broken(case: Case, fact: Fact) -> Parts:  # noqa: ARG001
    """A weight file that is no such file."""
    return (
        "A weight file is damaged: it cannot be read as what its name says.",
        f"The reader says: {short(fact.text)}",
        (
            "Download again: the file was cut short, or is a Git LFS pointer of a few hundred bytes (git lfs pull).",
            "Compare the sizes of the files with those on the hub.",
        ),
    )
