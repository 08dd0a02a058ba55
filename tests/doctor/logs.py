"""The example logs of the documents, which are in the wording of vLLM 0.11.0."""

from __future__ import annotations

from pathlib import Path

_EXAMPLES = Path(__file__).parent.parent.parent / "docs" / "examples"
REFUSED = (_EXAMPLES / "refused.log").read_text("utf-8")
SERVING = (_EXAMPLES / "serving.log").read_text("utf-8")
CUT = "".join(REFUSED.splitlines(keepends=True)[:8])
"""The log of a start that ends while the weights load."""
