"""The search finds what plans confirm, and nothing that they refuse."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kvroom.devices.catalogue import find_device, parts
from kvroom.devices.device import Machine
from kvroom.ledger.predict import predict
from kvroom.ledger.setup import Setup
from kvroom.ledger.verdict import Status
from kvroom.plans.make import plan_tokens
from kvroom.plans.request import Request
from kvroom.sizing.answer import answer_of
from kvroom.sizing.judge import Judge, room_of
from kvroom.sizing.layouts import Layout, counts, layouts
from kvroom.sizing.need import Need
from kvroom.sizing.prices import Prices, read_prices
from kvroom.sizing.problem import Problem, asked_as, usual_devices
from kvroom.sizing.search import Found, merged, pareto, search
from kvroom.sizing.workers import search_in_processes, search_on_ray

OFFLINE = Request(offline=True, vllm="0.28.0")
CARDS = tuple(find_device(name) for name in ("RTX 4090", "L40S", "A100-80GB", "H100", "MI300X"))


def _problem(model: str, context: int, concurrency: int, **limits: object) -> Problem:
    return Problem((model,), Need(context, context, concurrency), request=OFFLINE, **limits)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("model", "context", "concurrency"),
    [
        ("Qwen/Qwen3-32B", 32768, 8),
        ("Qwen/Qwen3-30B-A3B", 32768, 64),
        ("google/gemma-3-27b-it", 32768, 8),
        ("deepseek-ai/DeepSeek-V3", 32768, 32),
        ("openai/gpt-oss-120b", 65536, 16),
    ],
)
def test_every_option_is_a_launch_that_its_plan_says_fits(model: str, context: int, concurrency: int) -> None:
    found = search(_problem(model, context, concurrency, most=16), CARDS)
    assert found.options
    for option in found.options:
        assumed = option.weights if option.other_checkpoint else None
        request = replace(OFFLINE, gpu=f"{option.gpus}x {option.asked_as}", assume_quantization=assumed)
        planned = plan_tokens(option.tokens, {}, request).prediction
        assert planned.setup.machine.device.total_bytes == option.memory_bytes
        assert planned.verdict.status is Status.FITS
        assert planned.pool is not None
        assert planned.pool_low is not None
        replicas = option.layout.dp
        assert option.room == pytest.approx(planned.pool.max_concurrency * replicas)
        assert planned.pool_low.max_concurrency >= -(-concurrency // replicas)


def test_no_fewer_gpus_of_the_card_hold_it() -> None:
    problem = _problem("Qwen/Qwen3-32B", 32768, 8, most=8)
    judge = Judge(problem.base.release)
    native = problem.levels[0]
    for device in CARDS:
        options = [option for option in search(problem, [device]).options if option.rank == 0]
        assert len(options) == 1
        for gpus in counts(8, options[0].gpus - 1):
            for way in layouts(native.shape, gpus, 8):
                found = judge(native.shape, problem.args(native, way), device, gpus)
                room = room_of(found, 32768, problem.each(way))
                assert found.verdict.status is not Status.FITS or room.low < problem.each(way)


def test_the_judge_says_what_predict_says_on_every_card() -> None:
    problem = _problem("Qwen/Qwen3-30B-A3B", 16384, 16)
    judge = Judge(problem.base.release)
    for level in problem.levels:
        args = problem.args(level, Layout(tp=2))
        for part in parts():
            found = judge(level.shape, args, part.device, 2)
            alone = predict(Setup(level.shape, args, Machine(part.device, 2), problem.base.release))
            assert found.verdict == alone.verdict, part.device.name
            assert found.pool == alone.pool, part.device.name
            assert found.settings == alone.settings, part.device.name


def test_an_option_that_gives_up_more_needs_fewer_gpus() -> None:
    found = search(_problem("meta-llama/Llama-3.1-70B-Instruct", 32768, 8), CARDS)
    for device in CARDS:
        mine = sorted((option for option in found.options if option.device_id == device.id), key=lambda o: o.rank)
        assert [option.gpus for option in mine] == sorted({option.gpus for option in mine}, reverse=True)


def test_what_is_ruled_out_by_size_does_not_fit() -> None:
    problem = _problem("meta-llama/Llama-3.1-70B-Instruct", 32768, 8, most=8)
    found = search(problem, [find_device("RTX 4090")])
    assert found.ruled_out > 0
    judge = Judge(problem.base.release)
    native = problem.levels[0]
    for way in layouts(native.shape, 4, 8):
        assert judge(native.shape, problem.args(native, way), find_device("RTX 4090"), 4).verdict.status is Status.FAILS


def test_the_nearest_miss_would_be_cheaper() -> None:
    problem = _problem("Qwen/Qwen3-32B", 32768, 16)
    answer = answer_of(problem, search(problem, CARDS), Prices(), len(CARDS))
    assert answer.options
    for miss in answer.nearest:
        assert miss.cost < answer.options[0].cost
        assert not miss.meets


def test_a_need_that_nothing_holds_says_by_how_much() -> None:
    problem = _problem("meta-llama/Llama-3.1-70B-Instruct", 131072, 5000, most=8)
    answer = answer_of(problem, search(problem, CARDS), Prices(), len(CARDS))
    assert not answer.options
    assert answer.nearest[0].lacks_bytes > 0


def test_prices_decide_the_order_and_what_is_beaten() -> None:
    problem = _problem("Qwen/Qwen3-32B", 32768, 8)
    prices = read_prices(["RTX 4090=0.4", "L40S=0.9", "H100=2.5"])
    found = search(problem, [find_device(name) for name in ("RTX 4090", "L40S", "H100")])
    answer = answer_of(problem, found, prices, 3)
    costs = [option.price for option in answer.options]
    assert costs == sorted(costs)
    ranks = [option.rank for option in answer.options]
    assert ranks == sorted(ranks, reverse=True)
    for option in answer.options:
        assert option.price == pytest.approx(prices.hourly[option.device_id] * option.gpus)


def test_pareto_keeps_no_option_that_another_beats() -> None:
    found = search(_problem("Qwen/Qwen3-8B", 8192, 4), CARDS)
    kept = pareto(found.options)
    assert set(kept) <= set(found.options)
    best = {(option.device_id, option.gpus): option.rank for option in reversed(kept)}
    for option in found.options:
        assert option in kept or best[option.device_id, min(g for d, g in best if d == option.device_id)] <= option.rank


def test_processes_give_the_same_answers() -> None:
    problem = _problem("Qwen/Qwen3-8B", 16384, 8)
    alone = search(problem, CARDS)
    several = search_in_processes(problem, CARDS, 2)
    assert several.options == alone.options
    assert several.misses == alone.misses


class OneNodeRay:
    """A cluster in this process."""

    def __init__(self) -> None:
        self.address = ""

    def init(self, address: str) -> None:
        self.address = address

    def remote(self, function: object) -> object:
        class Task:
            @staticmethod
            def remote(*args: object) -> object:
                return function(*args)  # type: ignore[operator]

        return Task

    def get(self, tasks: object) -> list[object]:
        return list(tasks)  # type: ignore[call-overload]


def test_a_ray_cluster_gives_the_same_answers() -> None:
    problem, cluster = _problem("Qwen/Qwen3-8B", 16384, 8), OneNodeRay()
    assert search_on_ray(problem, CARDS, "ray://head:10001", cluster).options == search(problem, CARDS).options
    assert cluster.address == "ray://head:10001"


def test_an_empty_search_is_empty() -> None:
    assert merged([]) == Found()


def test_layouts_divide_the_model() -> None:
    shape = _problem("Qwen/Qwen3-30B-A3B", 4096, 1).base.shape
    for gpus in (1, 2, 4, 8, 16):
        ways = layouts(shape, gpus, 8)
        assert len(set(ways)) == len(ways)
        for way in ways:
            assert way.gpus == gpus
            assert shape.heads % way.tp == 0
            assert way.tp <= 8
            assert not way.ep or shape.experts.routed % (way.tp * way.dp) == 0
    assert counts(8, 32) == (1, 2, 4, 8, 16, 24, 32)
    assert counts(6, 12) == (1, 2, 4, 6, 12)


def test_usual_devices_are_found_again_by_their_id() -> None:
    devices = usual_devices()
    assert len(devices) > 60
    for device in devices:
        assert find_device(asked_as(device)).total_bytes == device.total_bytes, device.id
