"""Servers that fail, and what the command makes of it: one clear answer, in time."""

from __future__ import annotations

import socket
import time
from pathlib import Path

import pytest

from kvroom.errors import ServerError, UsageError
from kvroom.server.address import Access
from kvroom.server.limits import Cause
from kvroom.server.verify import Verification, Wishes, verify
from kvroom.server.workload import fixed
from tests.server.fake import Behaviour, FakeServer

CERTIFICATE = str(Path(__file__).with_name("self-signed.pem"))
QUICK = Wishes(stuck_s=0.6, silent_s=1.2, timeout=3.0, max_seconds=20.0, workload=fixed(64, 16), levels=(1, 2, 4))


def failing(found: Verification) -> dict[str, str]:
    return {check.name: check.seen for check in found.checks if check.held == "fails"}


def test_nobody_there() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # nobody listens
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(ServerError, match="Nobody answers"):
            verify(url, Access(), QUICK)


def test_a_host_without_a_name_in_the_network() -> None:
    with pytest.raises(ServerError, match="Nobody answers"):
        verify("http://no-such-host.invalid:8000", Access(), QUICK)


@pytest.mark.parametrize("url", ["http://ex\u00e4mple..com", "http://" + 80 * "\u00e4" + ".com"])
def test_a_host_that_dns_cannot_have(url: str) -> None:
    with pytest.raises(UsageError, match="is not the URL of a server"):
        verify(url, Access(), QUICK)


@pytest.mark.parametrize(("how", "words"), [("garbage", "No HTTP"), ("html", "no OpenAI-compatible server")])
def test_something_else_answers(how: str, words: str) -> None:
    with FakeServer(Behaviour(everything=how)) as server, pytest.raises(ServerError, match=words):
        verify(server.url, Access(), QUICK)


def test_a_server_that_says_nothing_at_all() -> None:
    began = time.monotonic()
    with FakeServer(Behaviour(everything="silent")) as server:
        found = verify(server.url, Access(), QUICK)

    assert "health" in failing(found)
    assert time.monotonic() - began < 60


def test_a_redirect_is_told_and_not_followed() -> None:
    with FakeServer() as other:
        with (
            FakeServer(Behaviour(everything="redirect", redirect_to=f"{other.url}/v1/models")) as server,
            pytest.raises(ServerError, match=r"redirects to http://127.0.0.1"),
        ):
            verify(server.url, Access((("Authorization", "Bearer k-12345"),)), QUICK)
        assert other.seen == []


def test_a_gateway_without_a_server_behind_it() -> None:
    with FakeServer(Behaviour(everything="503")) as server:
        found = verify(server.url, Access(), QUICK)

    assert failing(found)["models"] == "HTTP 503 no healthy upstream"


def test_a_certificate_that_nobody_signed() -> None:
    with FakeServer(tls=(CERTIFICATE, CERTIFICATE)) as server:
        with pytest.raises(ServerError, match="is not trusted: self-signed certificate") as error:
            verify(server.url, Access(), QUICK)
        assert "--ca-file" in error.value.cure
        assert server.seen == []

        for access in (Access(ca_file=CERTIFICATE), Access(insecure=True)):
            assert verify(server.url, access, Wishes(boundary=False, ramp=False)).holds


def test_tls_where_there_is_none() -> None:
    with FakeServer() as server, pytest.raises(ServerError, match="TLS"):
        verify(server.url.replace("http:", "https:"), Access(), QUICK)


def test_the_server_dies_in_the_middle_of_the_ramp() -> None:
    began = time.monotonic()
    with FakeServer(Behaviour(dies_after=22)) as server:
        found = verify(server.url, Access(), QUICK)

    assert found.ramp is not None
    assert found.ramp.limit.cause is Cause.GONE
    assert "load" in failing(found)
    assert "diagnose" in found.ramp.limit.changes[0].why
    assert time.monotonic() - began < 60


def test_the_server_dies_at_the_boundary() -> None:
    with FakeServer(Behaviour(dies_after=6)) as server:
        found = verify(server.url, Access(), QUICK)

    assert "health afterwards" in failing(found)
    assert found.ramp is None


def test_the_server_falls_silent_in_the_middle_of_the_ramp() -> None:
    began = time.monotonic()
    with FakeServer(Behaviour(goes_silent_after=22)) as server:
        found = verify(server.url, Access(), QUICK)

    assert found.ramp is not None
    assert found.ramp.limit.cause in {Cause.STUCK, Cause.FAILURES}
    assert "load" in failing(found)
    assert time.monotonic() - began < 60


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("500", "HTTP 500: EngineCore encountered an issue."),
        ("garbage", "no completion"),
        ("cut", "ended before the answer did|connection ended early"),
        ("error event", "EngineCore died"),
        ("binary event", "no JSON"),
        ("no tokens", "brings no token"),
    ],
)
def test_answers_that_are_none(how: str, words: str) -> None:
    import re

    with FakeServer(Behaviour(generation=how)) as server:
        found = verify(server.url, Access(), QUICK)

    assert not found.holds
    assert any(re.search(words, seen) for seen in failing(found).values()), failing(found)
    assert found.ramp is None


def test_a_slow_server_is_cut_off_and_reported() -> None:
    with FakeServer(Behaviour(step_s=0.4)) as server:
        found = verify(server.url, Access(), Wishes(timeout=0.9, max_seconds=10.0, boundary=False))

    assert not found.holds
    assert any("0.9 s" in seen for seen in failing(found).values())


def test_bounds_in_number_and_time_hold() -> None:
    with FakeServer() as server:
        found = verify(server.url, Access(), Wishes(max_requests=25, boundary=False, workload=fixed(16, 8)))
        sent = sum(1 for _, path, _, _ in server.seen if path in {"/v1/completions", "/v1/chat/completions"})
    assert sent == found.requests_sent <= 25
    assert found.ramp is not None
    assert found.ramp.limit.cause is Cause.BUDGET

    began = time.monotonic()
    with FakeServer(Behaviour(step_s=0.05)) as server:
        found = verify(server.url, Access(), Wishes(max_seconds=3.0, workload=fixed(16, 32)))
    assert time.monotonic() - began < 60
    assert found.ramp is not None


def test_without_the_right_key() -> None:
    with FakeServer(Behaviour(key="k-right")) as server:
        with pytest.raises(ServerError, match="without the right key") as error:
            verify(server.url, Access((("Authorization", "Bearer k-wrong"),)), QUICK)
        assert "k-wrong" not in str(error.value)
        assert verify(server.url, Access((("Authorization", "Bearer k-right"),)), QUICK).holds
