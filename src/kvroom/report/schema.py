"""The name of the JSON contract (see docs/json.md)."""

from __future__ import annotations

SCHEMA = "kvroom/1"
