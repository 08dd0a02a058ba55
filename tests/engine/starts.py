"""Starts real engines in this process, one after the other, as the lines on its standard input say.

A line is ``{"arguments": {...}, "environment": {...}}``; the answer is ``{"error": text or null}`` on a line of its
own, after a mark. Runs where vLLM is; vLLM's log goes to the standard error.
"""

import gc
import json
import os
import sys

MARK = "answer: "


def start(arguments: dict) -> str | None:
    """The text of what a start raised, None where it came up; the engine is taken down again."""
    from vllm import LLM

    try:
        engine = LLM(**arguments)
    except Exception as error:
        return str(error)
    engine.llm_engine.engine_core.shutdown()
    return None


if __name__ == "__main__":
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    for line in sys.stdin:
        question = json.loads(line)
        os.environ.update(question["environment"])
        answer = {"error": start(question["arguments"])}
        gc.collect()
        sys.stdout.write(f"{MARK}{json.dumps(answer)}\n")
        sys.stdout.flush()
