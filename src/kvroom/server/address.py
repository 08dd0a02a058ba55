"""Where a server is and how one is let in: the URL, the key, the certificate. Nothing here is sent anywhere."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from kvroom.errors import UsageError, short

_HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_OURS = {"host", "content-length", "transfer-encoding", "connection", "accept-encoding"}
_EXAMPLE = "Write it as in kvroom verify http://127.0.0.1:8000"


@dataclass(frozen=True, slots=True)
class Access:
    """Headers to send, and how a certificate is judged."""

    headers: tuple[tuple[str, str], ...] = ()
    ca_file: str | None = None
    insecure: bool = False

    def hide(self, text: str) -> str:
        """``text`` without the values of the headers, whoever quoted them."""
        for _, value in self.headers:
            for secret in (value, value.removeprefix("Bearer ")):
                if len(secret) > 3:
                    text = text.replace(secret, "<redacted>")
        return text


def parse_address(text: str) -> str:
    """The base of a server: ``http://host:port`` and a path before ``/v1`` if there is one.

    Raises UsageError for what is no http(s) URL, or carries a password or a query.

    >>> parse_address("localhost:8000"), parse_address("https://gpu.example/llm/v1/")
    ('http://localhost:8000', 'https://gpu.example/llm')
    """
    given = text.strip()
    if not given or any(ord(char) <= 32 or ord(char) == 127 for char in given):
        raise UsageError(f"{short(given) or 'An empty text'} is not the URL of a server.", _EXAMPLE)
    url = given if "://" in given else f"http://{given}"
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise UsageError(f"{short(given)} is not the URL of a server: {error}.", _EXAMPLE) from None
    if parts.scheme not in {"http", "https"} or not host or port == 0:
        raise UsageError(f"{short(given)} is not the URL of a server.", _EXAMPLE)
    if parts.username is not None or parts.password is not None:
        raise UsageError(
            "The URL holds a name or a password.", "Name the variable that holds a key: --api-key-env NAME"
        )
    if parts.query or parts.fragment:
        raise UsageError(f"{short(given)} holds a query; only the address of the server is needed.", _EXAMPLE)
    if not all(char.isalnum() or char in ".-_:%" for char in host):
        raise UsageError(f"{short(given)} is not the URL of a server: {short(host, 40)} is no host.", _EXAMPLE)
    path = re.sub(r"/v1(/(models|completions|chat/completions))?$", "", parts.path.rstrip("/"))
    shown = f"[{host}]" if ":" in host else host
    return f"{parts.scheme}://{shown}{f':{port}' if port else ''}{path}"


def access_of(
    headers: Sequence[str],
    key_variable: str | None,
    environment: Mapping[str, str],
    ca_file: str | None = None,
    *,
    insecure: bool = False,
) -> Access:
    """What ``--header``, ``--api-key-env``, ``--ca-file`` and ``--insecure`` say.

    Raises UsageError for a header that is none, or a variable that is not set. A key is read from no
    variable but the one that was named.
    """
    found: list[tuple[str, str]] = []
    if key_variable is not None:
        key = environment.get(key_variable, "").strip()
        if not key:
            raise UsageError(f"--api-key-env {short(key_variable, 60)}: that variable is not set.", "Export the key.")
        found.append(("Authorization", f"Bearer {_plain(key, f'The key in {key_variable}')}"))
    for text in headers:
        name, colon, value = text.partition(":")
        if not colon or not _HEADER.fullmatch(name.strip()) or name.strip().lower() in _OURS:
            raise UsageError("--header: not a header that can be set.", "Write it as in --header 'X-Team: search'")
        found.append((name.strip(), _plain(value.strip(), f"The value of the header {name.strip()}")))
    return Access(tuple(found), ca_file, insecure)


def _plain(value: str, what: str) -> str:
    if not value.isascii() or not value.isprintable():
        raise UsageError(f"{short(what)} holds characters that no header may hold.")
    return value
