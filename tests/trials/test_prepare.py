"""From what is asked to a run that can begin."""

from __future__ import annotations

from typing import Any

import pytest

from kvroom.errors import UsageError
from kvroom.plans.request import Request
from kvroom.trials.foresee import CardForesight, HostForesight
from kvroom.trials.prepare import Asked, Prepared, prepare
from kvroom.trials.trial import Proposal


def ready(command: list[str], gpu: str | None = "cpu", **asked: Any) -> Prepared:
    return prepare(command, Asked(request=Request(gpu=gpu, vllm="0.32.0", offline=True), **asked))


def test_the_platform_is_what_was_said(command: list[str]) -> None:
    here, card = ready(command), ready(command, gpu="2x RTX 3090")

    assert (here.question.terms.platform.kind, here.question.gpu, here.question.gpus) == ("cpu", None, 0)
    assert isinstance(here.foresight, HostForesight)
    assert (card.question.terms.platform.kind, card.question.gpu, card.question.gpus) == ("gpu", "2x RTX 3090", 1)
    assert isinstance(card.foresight, CardForesight)


@pytest.mark.parametrize(
    ("goal", "concurrency", "requests"),
    [("context=32k", 4, 8), ("concurrency=12@8k", 12, 24), ("throughput", 16, 32)],
)
def test_the_load_follows_the_goal(command: list[str], goal: str, concurrency: int, requests: int) -> None:
    load = ready(command, goal=goal).question.load

    assert (load.input_len, load.output_len, load.concurrency, load.requests) == (512, 128, concurrency, requests)


def test_a_short_context_gets_short_requests(command: list[str]) -> None:
    load = ready([*command, "--max-model-len", "256"]).question.load

    assert (load.input_len, load.output_len) == (128, 64)


def test_the_same_question_has_the_same_key_and_more_trials_do_not_change_it(command: list[str]) -> None:
    assert ready(command).question.key == ready(command, max_trials=30).question.key
    assert ready(command).question.key != ready([*command, "--api-key", "sk-1"]).question.key
    assert ready(command).question.key != ready(command, goal="context=8k").question.key


def test_flags_to_keep_are_named_as_people_name_them(command: list[str]) -> None:
    for name in ("max-num-seqs", "--max-num-seqs", "max_num_seqs"):
        assert ready(command, keep=(name,)).question.terms.pinned == {"max_num_seqs"}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--ssl-certfile", "x"], "TLS"),
        (["--runner", "pooling"], "pooling"),
        (["--max-num-seqs", "many"], "max-num-seqs"),
    ],
)
def test_commands_that_no_trial_suits_are_one_error(words: list[str], said: str, command: list[str]) -> None:
    with pytest.raises(UsageError, match=said):
        ready([*command, *words])


def test_a_launch_takes_the_proposals_flags_in_their_places(command: list[str]) -> None:
    question = ready([*command, "--max-num-seqs", "4", "--seed", "1"]).question
    changes = {"max_num_seqs": 8, "env A": "b"}
    tokens, env = question.launch_of(Proposal(changes=changes, step=changes, why=""))

    assert tokens[-4:] == ["--max-num-seqs", "8", "--seed", "1"]
    assert env["A"] == "b"
