"""The building blocks from which every architecture's weights are listed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from kvroom.errors import BadConfig
from kvroom.models.families.common import MAX_DRAFTS, MAX_LAYERS
from kvroom.models.weights.tensor import Part, Place, Shard, Tensor

_LAST_LAYER = MAX_LAYERS + MAX_DRAFTS


@dataclass
class Stack:
    """Collects the weights of one model; every method adds and returns nothing.

    ``part``, ``place`` and ``layers`` are the defaults of what is added; ``at`` sets them for a block.
    """

    tensors: list[Tensor] = field(default_factory=list)
    part: Part = Part.OTHER
    place: Place = Place.LAYERS
    layers: Sequence[int] = ()
    prefix: str = ""
    copies: int = 1

    def at(
        self,
        prefix: str,
        layers: Sequence[int] = (),
        *,
        part: Part = Part.OTHER,
        place: Place = Place.LAYERS,
        copies: int = 1,
    ) -> Stack:
        """A view on the same list whose additions lie below ``prefix`` in ``layers``.

        Raises BadConfig for layers that no model has: a config may count more of one kind than there are.
        """
        if layers and not 0 <= layers[0] <= layers[-1] <= _LAST_LAYER:
            raise BadConfig(f"config.json speaks of layers {layers[0]} to {layers[-1]}, which no model has.")
        return Stack(self.tensors, part, place, layers, prefix, copies)

    def inside(self, name: str, part: Part) -> Stack:
        """As ``at``, for a module inside this one."""
        return self.at(self.prefix + name, self.layers, part=part, place=self.place, copies=self.copies)

    def add(
        self,
        name: str,
        out: int | tuple[int, ...],
        inp: int = 1,
        shard: Shard = Shard.REPLICATED,
        *,
        units: tuple[int, ...] = (),
        quantisable: bool = False,
        dtype: str | None = None,
        counted: bool = True,
        copies: int = 1,
        experts: bool = False,
        tied: bool = False,
        part: Part | None = None,
    ) -> None:
        """Adds one weight; nothing where no layer or no element has it."""
        sizes = (out,) if isinstance(out, int) else out
        if (self.place is Place.LAYERS and not self.layers) or sum(sizes) * inp == 0 or self.copies == 0:
            return
        self.tensors.append(
            Tensor(
                path=self.prefix + name,
                out=sizes,
                inp=inp,
                shard=shard,
                layers=self.layers,
                copies=copies * self.copies,
                units=units,
                experts=experts,
                place=self.place,
                part=part or self.part,
                quantisable=quantisable,
                dtype=dtype,
                counted=counted,
                tied=tied,
            )
        )

    def linear(
        self,
        name: str,
        out: int | tuple[int, ...],
        inp: int,
        shard: Shard = Shard.REPLICATED,
        *,
        bias: bool = False,
        units: tuple[int, ...] = (),
        quantisable: bool = True,
        dtype: str | None = None,
    ) -> None:
        """A linear layer with, where ``bias``, its bias (whole on every rank unless column-parallel)."""
        self.add(name, out, inp, shard, units=units, quantisable=quantisable, dtype=dtype)
        if bias:
            split = Shard.COLUMN if shard is Shard.COLUMN else Shard.REPLICATED
            self.add(f"{name}.bias", out, 1, split, units=units)

    def column(
        self,
        name: str,
        out: int | tuple[int, ...],
        inp: int,
        *,
        bias: bool = False,
        units: tuple[int, ...] = (),
    ) -> None:
        """A column-parallel linear layer."""
        self.linear(name, out, inp, Shard.COLUMN, bias=bias, units=units)

    def row(self, name: str, out: int, inp: int, *, bias: bool = False) -> None:
        """A row-parallel linear layer."""
        self.linear(name, out, inp, Shard.ROW, bias=bias)

    def norm(self, name: str, size: int, *, bias: bool = False) -> None:
        """A norm's weight and, where ``bias``, its bias."""
        self.add(name, size * (2 if bias else 1))

    def norms(self, names: Sequence[str], size: int, *, bias: bool = False) -> None:
        """Norms of one size."""
        for name in names:
            self.norm(name, size, bias=bias)

    def attention(
        self,
        name: str,
        hidden: int,
        heads: int,
        kv_heads: int,
        head: int,
        *,
        head_v: int | None = None,
        bias: bool = False,
        out_bias: bool = False,
        query_gate: bool = False,
        qk_norm: int | tuple[int, int] = 0,
        out_name: str = "o_proj",
    ) -> None:
        """Grouped-query attention: qkv and output projections, optional query and key norms.

        ``qk_norm`` is the width of both norms or (query's, key's); ``query_gate`` doubles the query.
        """
        view = self.inside(name, Part.ATTENTION)
        v = head if head_v is None else head_v
        q_units = heads * (2 if query_gate else 1)
        view.column(
            "qkv_proj",
            (q_units * head, kv_heads * head, kv_heads * v),
            hidden,
            bias=bias,
            units=(q_units, kv_heads, kv_heads),
        )
        view.row(out_name, hidden, heads * v, bias=out_bias)
        q_norm, k_norm = (qk_norm, qk_norm) if isinstance(qk_norm, int) else qk_norm
        for label, width, count in (("q_norm", q_norm, heads), ("k_norm", k_norm, kv_heads)):
            if width:
                split = Shard.COLUMN if width == count * head and count > 1 else Shard.REPLICATED
                view.add(label, width, 1, split, units=(count,) if split is Shard.COLUMN else ())

    def mlp(
        self,
        name: str,
        hidden: int,
        intermediate: int,
        *,
        gated: bool = True,
        bias: bool = False,
        up: str = "gate_up_proj",
        down: str = "down_proj",
        part: Part = Part.MLP,
    ) -> None:
        """A feed-forward layer, gated or not."""
        view = self.inside(name, part)
        view.column(up, (intermediate, intermediate) if gated else intermediate, hidden, bias=bias)
        view.row(down, hidden, intermediate, bias=bias)

    def experts(
        self,
        name: str,
        hidden: int,
        intermediate: int,
        count: int,
        *,
        gated: bool = True,
        bias: bool = False,
    ) -> None:
        """``count`` routed experts under ``name``, gate and up fused as vLLM fuses them."""
        view = self.inside(name, Part.EXPERTS)
        w13 = (intermediate, intermediate) if gated else (intermediate,)
        view.add("w13", w13, hidden, Shard.COLUMN, quantisable=True, copies=count, experts=True)
        view.add("w2", hidden, intermediate, Shard.ROW, quantisable=True, copies=count, experts=True)
        if bias:
            view.add("w13.bias", w13, 1, Shard.COLUMN, copies=count, experts=True)
            view.add("w2.bias", hidden, 1, Shard.REPLICATED, copies=count, experts=True)

    def router(
        self,
        name: str,
        hidden: int,
        count: int,
        *,
        dtype: str | None = None,
        bias: bool = False,
        correction: str | None = None,
        correction_counted: bool = False,
    ) -> None:
        """The router of ``count`` experts and, under ``correction``, its score bias.

        Most checkpoints hold that bias as a buffer, which parameter counts leave out.
        """
        view = self.inside("", Part.OTHER)
        view.linear(name, count, hidden, bias=bias, quantisable=False, dtype=dtype)
        if correction:
            view.add(correction, count, 1, dtype="float32", counted=correction_counted)

    def mla(
        self,
        name: str,
        hidden: int,
        heads: int,
        *,
        q_lora: int,
        kv_lora: int,
        nope: int,
        rope: int,
        v: int,
        bias: bool = False,
    ) -> None:
        """Multi-head latent attention: low-rank query and key-value projections.

        The first projections are whole on every rank; vLLM keeps the two halves of ``kv_b_proj`` a second
        time after loading, transposed for absorption (layers/attention/mla_attention.py:
        MLAAttention.process_weights_after_loading).
        """
        view = self.inside(name, Part.ATTENTION)
        head = nope + rope
        if q_lora:
            view.linear("fused_qkv_a_proj", (q_lora, kv_lora + rope), hidden, bias=bias)
            view.norm("q_a_layernorm", q_lora)
            view.column("q_b_proj", heads * head, q_lora)
        else:
            view.linear("kv_a_proj_with_mqa", kv_lora + rope, hidden, bias=bias)
            view.column("q_proj", heads * head, hidden)
        view.norm("kv_a_layernorm", kv_lora)
        view.column("kv_b_proj", heads * (nope + v), kv_lora)
        view.row("o_proj", hidden, heads * v, bias=bias)
        view.add("mla_attn.W_UK_UV", heads * (nope + v), kv_lora, Shard.COLUMN, counted=False, part=Part.ABSORBED)

    def embedding(self, name: str, vocab: int, hidden: int) -> None:
        """The input embedding, on the first stage."""
        view = self.at(name, part=Part.EMBEDDING, place=Place.FIRST)
        view.add("", vocab, hidden, Shard.VOCAB)

    def head(self, name: str, vocab: int, hidden: int, *, tied: bool, bias: bool = False) -> None:
        """The output head, on the last stage; where ``tied`` it is the embedding."""
        view = self.at(name, part=Part.LM_HEAD, place=Place.LAST)
        view.add("", vocab, hidden, Shard.VOCAB, quantisable=not tied, tied=tied, counted=not tied)
        if bias:
            view.add(".bias", vocab, 1, Shard.VOCAB)
