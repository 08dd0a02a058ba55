"""Weights: what a model's tensors are, in what format each is stored, and how one is cut."""

from __future__ import annotations

from kvroom.models.weights.tensor import Part, Place, Shard, Tensor, parameters
from kvroom.models.weights.tensors import is_known, tensors_of

__all__ = ["Part", "Place", "Shard", "Tensor", "is_known", "parameters", "tensors_of"]
