"""The child's whole run: questions on standard input, steps and answers as JSON lines on a file descriptor."""

from __future__ import annotations

import json
import os
import resource
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any


def main(answer_fd: int) -> None:
    """Answer each question that standard input holds, in turn; every line written is one JSON object.

    All are about the same card, environment and build. Each is answered in a fork: what vLLM keeps in its modules
    (buffers of kernels, workspaces) would be missing from the next answer, and one that fails leaves the others alone.
    """
    request = json.load(sys.stdin)
    begun = time.monotonic()
    now = ["start"]

    def say(**what: Any) -> None:
        os.write(answer_fd, (json.dumps(what, default=str) + "\n").encode())

    def step(name: str) -> None:
        now[0] = name
        say(step=name, at=round(time.monotonic() - begun, 2))

    def failed(error: BaseException) -> None:
        say(
            failed={
                "step": now[0],
                "kind": type(error).__name__,
                "message": str(error)[:4000],
                "where": _where(error),
            }
        )

    def answered(answering: Callable[[dict[str, Any]], dict[str, Any]], question: dict[str, Any]) -> None:
        try:
            answer = answering(question)
        except BaseException as error:
            failed(error)
            return
        answer["seconds"] = round(time.monotonic() - begun, 2)
        answer["peak_rss"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        say(answer=answer)

    try:
        answering = _pretending(request, step)
    except BaseException as error:
        for _ in request["questions"]:
            failed(error)
        return
    for question in request["questions"]:
        child = os.fork()
        if child == 0:
            answered(answering, question)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if status:
            failed(RuntimeError(f"the process was killed by signal {status & 127}; main memory may have run out"))
        begun = time.monotonic()


def _where(error: BaseException) -> str:
    """The last frames of vLLM's code and of this folder's; torch's own say nothing of the cause."""
    frames = [each for each in traceback.extract_tb(error.__traceback__) if "/torch/" not in each.filename]
    return "".join(traceback.format_list(frames[-8:]))[-4000:]


def _pretending(request: dict[str, Any], step: Callable[[str], None]) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """What answers questions about the card of ``request``, once vLLM believes in it."""
    from . import pretend

    step("start vLLM")
    pretend.environment(request.get("env", {}))
    pretend.gpu_build()
    from . import claims, kernels, platform, standins
    from .memory import Card

    description = pretend.Description(request["card"])
    pretend.guard()
    card = Card(description.total, request["card"].get("used", 0), pretend.cublas_workspace(description))
    pretend.cuda(description, card)
    kernels.triton(description)
    standins.torchvision()
    standins.compiled_modules()
    standins.flash_attention(description, request.get("without", ()))
    claims.packages(request.get("without", ()))
    standins.operators(description)
    platform.install(description)
    platform.registry_in_this_process()
    import vllm

    from . import parameters, plan, worker

    parameters.keep_their_kind()
    worker.no_weights_are_made_up()

    worker.load_modules()

    def answering(question: dict[str, Any]) -> dict[str, Any]:
        step("resolve the configuration")
        config = worker.configuration(question["argv"])
        answer: dict[str, Any] = {"vllm_version": vllm.__version__, "settings": plan.settings_of(config)}
        answer |= worker.traced(config, card, question.get("rank", 0), step)
        specs = answer.pop("specs")
        answer |= plan.planned(config, specs, question.get("available") or [answer["left_for_cache"]])
        answer["missing_operators"] = sorted(standins.missing)
        if "mxfp4" in str(answer["settings"]["quantization"]) and pretend.marlin_for_mxfp4():
            answer["missing_operators"].append("triton_kernels, with Marlin in their place")
        return answer

    return answering
