"""Which model a plan is about: its own config, or that of a packaged model of the same architecture."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from kvroom.errors import UnknownModel
from kvroom.models.kin import Kin, find_kin
from kvroom.models.quantization import Quantization, assume_quantization
from kvroom.models.shape import ModelShape
from kvroom.models.source import load_model


def find_model(
    name: str,
    *,
    offline: bool,
    revision: str | None = None,
    overrides: Mapping[str, Any] | None = None,
    assumed: str | None = None,
    asked_length: int | None = None,
) -> tuple[ModelShape, tuple[str, ...]]:
    """The shape of ``name`` and notes on what was assumed.

    ``assumed`` is the quantisation to price it with. Where the model cannot be read but its name speaks of
    a packaged one, that one stands in; its own context limit is then unknown, so ``asked_length`` is
    believed. Raises UnknownModel where neither can be had.
    """
    notes: tuple[str, ...] = ()
    try:
        shape = load_model(name, offline=offline, revision=revision, overrides=overrides)
    except UnknownModel as error:
        kin = find_kin(name)
        if kin is None:
            raise
        if kin.positions is not None and "max_position_embeddings" in kin.entry.config:
            overrides = {"max_position_embeddings": kin.positions, **(overrides or {})}
        shape = load_model(kin.entry.name, offline=True, overrides=overrides)
        assumed = assumed or kin.quantization
        shape = _with_length(shape, kin, asked_length)
        notes = (_said(name, kin, error),)
    if assumed:
        shape = replace(shape, quantization=_assumed(shape, assumed))
    return shape, notes


def _assumed(shape: ModelShape, name: str) -> Quantization:
    """The quantisation ``name`` as files of such a model have it.

    Where experts hold most of the weights, the recipes of llm-compressor leave recurrent layers plain
    (examples: qwen3_next, qwen3_5_moe), as public logs confirm; dense models' are quantised.
    """
    quantization = assume_quantization(name)
    if not (shape.is_moe and shape.has_state):
        return quantization
    return replace(quantization, ignored=(*quantization.ignored, "re:.*linear_attn.*"), _matchers={})


def _said(name: str, kin: Kin, error: UnknownModel) -> str:
    stored = f", stored as {kin.quantization}" if kin.quantization else ""
    return (
        f"{error.problem} Its name speaks of {kin.entry.name}{stored}, whose config is used instead: "
        f"check that {name} has that architecture."
    )


def _with_length(shape: ModelShape, kin: Kin, asked: int | None) -> ModelShape:
    own = max(kin.positions or 0, asked or 0)
    if not own or not shape.position_limits:
        return shape
    limits = tuple((field, max(limit, own)) for field, limit in shape.position_limits)
    return replace(shape, position_limits=limits)
