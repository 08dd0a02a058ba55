from __future__ import annotations

import subprocess
import sys

import pytest

from kvroom.errors import ServerError, UsageError
from kvroom.server.limits import Cause
from kvroom.server.measure import measure
from kvroom.server.workload import fixed
from tests.server.fake import Behaviour, FakeServer


def test_the_figures_of_a_load() -> None:
    with FakeServer(Behaviour(step_s=0.005)) as server:
        found = measure(server.url, fixed(100, 20), concurrency=4, requests=12)

    assert found.served
    assert (found.kv_tokens, found.max_model_len, found.failures, found.limit) == (2048, 512, (), None)
    assert found.ttft is not None
    assert found.tpot is not None
    assert found.ttft.count == found.tpot.count == 12
    assert found.tpot.median == pytest.approx(0.005, rel=0.3)
    assert found.output_rate == pytest.approx(12 * 20 / found.step.duration)


def test_the_rate_is_that_of_a_server_whose_pace_is_known() -> None:
    """Eight seats, a token for each of them every 20 ms."""
    with FakeServer(Behaviour(step_s=0.02, seats=8, num_blocks=2000)) as server:
        found = measure(server.url, fixed(16, 50), concurrency=8, requests=16, pool=False)

    assert 0.5 * 400 < found.output_rate < 410


def test_failures_are_in_the_result() -> None:
    with FakeServer(Behaviour(dies_after=5)) as server:
        found = measure(server.url, fixed(100, 20), concurrency=4, requests=12)

    assert not found.served
    assert found.limit is not None
    assert found.limit.cause is Cause.GONE


def test_a_load_that_does_not_fit_and_a_server_that_is_not_there_are_errors() -> None:
    with FakeServer() as server:
        with pytest.raises(UsageError):
            measure(server.url, fixed(512, 20), concurrency=1, requests=1)
        url = server.url
    with pytest.raises(ServerError):
        measure(url, fixed(100, 20), concurrency=1, requests=1)


def test_the_extra_that_is_missing_is_named_and_loaded_by_nothing_else() -> None:
    code = (
        "import sys, importlib.abc\n"
        "class Absent(importlib.abc.MetaPathFinder):\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.split('.')[0] in ('httpx', 'prometheus_client'): raise ModuleNotFoundError(name)\n"
        "sys.meta_path.insert(0, Absent())\n"
        "import kvroom.report.verify_html, kvroom.report.verify_text, kvroom.server.measure\n"
        "from kvroom.cli.verify import verify\n"
        "verify.main(['http://127.0.0.1:1'], standalone_mode=False)\n"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert "pip install 'kvroom[verify]'" in ran.stderr
