"""One weight of a model, as vLLM lays it out, before any sharding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum


class Shard(StrEnum):
    """What tensor parallelism does with a weight of ``out`` x ``inp``."""

    REPLICATED = "replicated"
    COLUMN = "column"
    """Output features are divided."""
    ROW = "row"
    """Input features are divided."""
    VOCAB = "vocab"
    """Rows are padded to a multiple that the release fixes, then divided."""


class Place(StrEnum):
    """Which pipeline stages hold a weight."""

    LAYERS = "layers"
    """The stage that runs the decoder layer."""
    FIRST = "first"
    LAST = "last"
    EVERY = "every"


class Part(StrEnum):
    """What a weight is for, as the explanation lists it."""

    EMBEDDING = "embedding"
    ATTENTION = "attention"
    MLP = "mlp"
    EXPERTS = "experts"
    STATE = "recurrent layers"
    LM_HEAD = "lm_head"
    VISION = "vision and audio"
    BUFFERS = "buffers"
    OTHER = "norms and others"
    DRAFT = "draft"
    LORA = "lora"
    ABSORBED = "absorbed MLA copies"


@dataclass(frozen=True, slots=True)
class Tensor:
    """``copies`` equal weights in each of ``layers`` (or once, where ``layers`` is empty)."""

    path: str
    """vLLM's module path with ``N`` for the layer's number."""
    out: tuple[int, ...]
    """Output features of the parts that one module fuses: (q, k, v), (gate, up), or one."""
    inp: int = 1
    shard: Shard = Shard.REPLICATED
    layers: Sequence[int] = ()
    copies: int = 1
    """Experts or encoder blocks that each have this weight."""
    units: tuple[int, ...] = ()
    """Heads or groups in each part of ``out``: a part is never cut below one unit. Empty: no such limit."""
    experts: bool = False
    """``copies`` are routed experts, which expert parallelism spreads over the ranks."""
    place: Place = Place.LAYERS
    part: Part = Part.OTHER
    quantisable: bool = False
    """A linear layer that a quantisation method may store in its own format."""
    dtype: str | None = None
    """A dtype that the model fixes whatever the launch says, such as ``float32``."""
    counted: bool = True
    """A parameter of the checkpoint; not so buffers, copies that vLLM makes, and tied heads."""
    tied: bool = False
    """An output head that is the embedding: a copy of its own only where the stages differ."""

    @property
    def elements(self) -> int:
        """Elements of one copy in the whole model."""
        return sum(self.out) * self.inp

    @property
    def count(self) -> int:
        """Copies in the whole model."""
        return self.copies * (len(self.layers) or 1)


GUESSED = "guessed."
"""First part of the path of a weight that was listed without knowing the architecture."""


def guessed_share(tensors: Sequence[Tensor]) -> float:
    """The share of parameters that rest on a guess: all of them where the language model is not known."""
    if any(tensor.path.startswith(f"{GUESSED}model.") for tensor in tensors):
        return 1.0
    guessed = sum(t.elements * t.count for t in tensors if t.counted and t.path.startswith(GUESSED))
    return guessed / parameters(tensors) if guessed else 0.0


def parameters(tensors: Sequence[Tensor]) -> int:
    """Parameters of ``tensors`` as a checkpoint counts them: tied weights once, no buffers."""
    return sum(tensor.elements * tensor.count for tensor in tensors if tensor.counted)
