"""From a proposal to a launch that can be carried out: the words, the environment, the port, the container's name."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

from kvroom.trials.changes import env_with, words_with
from kvroom.trials.launch import PORT, Order
from kvroom.trials.launchers.docker import contain
from kvroom.trials.question import Question
from kvroom.trials.trial import Proposal


def order_of(question: Question, run: str, number: int, proposal: Proposal, folder: Path, proof: int | None) -> Order:
    """The launch of ``proposal`` as trial ``number`` of ``run``; its log lies in ``folder``."""
    command = question.command
    tokens, _ = question.launch_of(proposal)
    log = folder / "server.log"
    if log.exists():
        log.replace(folder / f"server-{time.time_ns()}.log")  # of a launch that was interrupted
    order = Order(
        number=number,
        words=(),
        env={**command.own_env, **env_with({}, proposal.changes)},
        log=log,
        load=question.load,
        repeats=question.repeats,
        proof=proof,
        timeout=question.timeout,
        gpus=question.gpus,
    )
    if command.container is not None:
        name = f"kvroom-{run}-{number}"
        box = contain(command.front, command.tokens, question.release, name)
        front = (*box.front[:-1], *_container_env(proposal), box.front[-1])
        return replace(
            order,
            words=(*front, *tokens),
            env=dict(command.own_env),
            port=box.port,
            afterwards=box.removal,
            container=name,
        )
    own = words_with(tokens, {"host": "127.0.0.1", "port": PORT}, question.release)
    return replace(order, words=(*command.front, *own))


def _container_env(proposal: Proposal) -> list[str]:
    return [word for name, value in env_with({}, proposal.changes).items() for word in ("--env", f"{name}={value}")]
