from __future__ import annotations

import pytest

from kvroom.errors import UsageError
from kvroom.server.address import access_of, parse_address


@pytest.mark.parametrize(
    ("given", "base"),
    [
        ("http://127.0.0.1:8000", "http://127.0.0.1:8000"),
        ("127.0.0.1:8000/", "http://127.0.0.1:8000"),
        ("https://gpu.example/v1", "https://gpu.example"),
        ("https://gpu.example/llm/v1/chat/completions", "https://gpu.example/llm"),
        ("http://[::1]:8000/v1/", "http://[::1]:8000"),
        (" localhost ", "http://localhost"),
    ],
)
def test_the_base_of_a_server(given: str, base: str) -> None:
    assert parse_address(given) == base


@pytest.mark.parametrize(
    "given",
    ["", "  ", "ftp://host", "http://", "http://host:notaport", "http://host:70000", "http://host:0", "http://a b", "http://ho\x00st",
     "http://host/?a=1", "http://host#x", "http://[::1", "file:///etc/passwd", "http://<host>"],
)  # fmt: skip
def test_what_is_no_address_is_an_error(given: str) -> None:
    with pytest.raises(UsageError):
        parse_address(given)


def test_a_password_in_the_address_is_refused_and_not_shown() -> None:
    with pytest.raises(UsageError) as error:
        parse_address("http://me:hunter2@host:8000")
    assert "hunter2" not in str(error.value)


def test_a_key_is_read_from_the_variable_named_and_no_other() -> None:
    environment = {"VLLM_API_KEY": "one-key", "OPENAI_API_KEY": "other-key"}

    assert access_of((), None, environment).headers == ()
    assert access_of((), "OPENAI_API_KEY", environment).headers == (("Authorization", "Bearer other-key"),)


@pytest.mark.parametrize("environment", [{}, {"KEY": ""}, {"KEY": "a\nHost: evil"}, {"KEY": "schlüssel"}])
def test_a_key_that_is_none_is_an_error(environment: dict[str, str]) -> None:
    with pytest.raises(UsageError) as error:
        access_of((), "KEY", environment)
    assert "evil" not in str(error.value)


@pytest.mark.parametrize(
    "header", ["", "no colon", ": value", "Host: elsewhere", "A b: c", "X: a\r\nY: b", "Content-Length: 3"]
)
def test_a_header_that_cannot_be_set_is_an_error(header: str) -> None:
    with pytest.raises(UsageError):
        access_of((header,), None, {})


def test_what_a_server_quotes_of_a_key_is_hidden() -> None:
    access = access_of(("X-Team: secret-team",), "KEY", {"KEY": "abcdef"})

    assert access.hide("no: abcdef, Bearer abcdef, secret-team") == "no: <redacted>, <redacted>, <redacted>"
