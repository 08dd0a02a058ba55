"""kvroom inside vLLM: a general plugin that adds the facts to a refused start, and keeps those of one that came up.

vLLM calls ``register`` in every process of an engine. It costs a few imports of the standard library, and never
breaks a start: whatever goes wrong here is logged once and left alone.
"""

from __future__ import annotations

import os

OFF = frozenset({"0", "false", "no", "off"})
"""Values of ``KVROOM_PLUGIN`` that switch it off."""


def register() -> None:
    """Watch the engine of this process, if it comes to have one; the entry point in ``vllm.general_plugins``."""
    try:
        if os.environ.get("KVROOM_PLUGIN", "").strip().lower() in OFF:
            return
        import sys

        from kvroom.plugin.attach import attach
        from kvroom.plugin.table import table

        attach(table(), sys.modules, sys.meta_path, os.environ)
    except Exception as error:  # noqa: BLE001 - a start that would have come up must come up
        from kvroom.plugin.log import complain

        complain("the plugin is left out", error)
