"""Manifests to launches: compose files, Kubernetes objects, KServe, RayService, Helm values. Nothing is applied."""

from __future__ import annotations

from kvroom.launches.manifests.documents import concerns_vllm
from kvroom.launches.manifests.read import read_manifest

__all__ = ["concerns_vllm", "read_manifest"]
