"""What of a text would tell who runs it and where: home folders, user and host names, network addresses."""

from __future__ import annotations

import re
from dataclasses import dataclass
from ipaddress import ip_address

from kvroom.redaction import MASK, anonymous

_HOME = re.compile(
    r"(?:/[\w.-]+){0,3}?/(?:home|Users)/[^/:;,\s\"']+"
    r"|[A-Za-z]:\\Users\\[^\\:;,\"']+"
    r"|(?<![\w/.-])/root(?![\w.-])"
)
_ADDRESS = re.compile(
    r"(?<![\w.])(?:[0-9]{1,3}\.){3}[0-9]{1,3}(?![\w.]|-[0-9])"
    r"|(?<![\w:.])(?:[0-9A-Fa-f]{0,4}:){2,7}[0-9A-Fa-f]{0,4}(?![\w:])"
)
_SITE = re.compile(r"(?<=://)[^\s/:,;\"'?#\[\]]+")
_MAIL = re.compile(r"[\w.+-]{1,64}@[A-Za-z0-9.-]{1,200}")
_PUBLIC = frozenset({"huggingface.co", "hf.co", "hf-mirror.com", "modelscope.cn", "pytorch.org", "github.com"})
_COMMON = frozenset(
    """admin app apps cuda data debian default dev docker gpu home host jovyan lib linux local localhost model models
    nobody node nvidia opt python ray root server service test torch ubuntu user users vllm work workspace""".split()
)
"""Names of users and hosts that tell nothing, and stand in texts for other things."""


@dataclass(frozen=True, slots=True)
class Owner:
    """Whose machine it is; empty where unknown."""

    home: str = ""
    user: str = ""
    host: str = ""


def shareable(text: str, owner: Owner) -> str:
    """``text`` as one line for a public report: secrets masked, homes as ``~``, no names and addresses of the owner.

    >>> shareable("/home/jane/.cache:/opt/lib tcp://10.1.2.3:80 http://127.0.0.1", Owner())
    '~/.cache:/opt/lib tcp://<redacted>:80 http://127.0.0.1'
    """
    text = anonymous(text).replace("\n", " ")
    home = owner.home.rstrip("/\\")
    if len(home) > 1:
        text = re.sub(rf"(?<![\w/.-]){re.escape(home)}(?![\w.-])", "~", text)
    text = _HOME.sub("~", text)
    for name in (owner.host, owner.host.partition(".")[0], owner.user):
        if len(name) > 2 and name.lower() not in _COMMON:
            text = re.sub(rf"(?<![A-Za-z0-9]){re.escape(name)}(?![A-Za-z0-9])", MASK, text, flags=re.IGNORECASE)
    return _SITE.sub(_site, _ADDRESS.sub(_address, _MAIL.sub(MASK, text)))


def _address(found: re.Match[str]) -> str:
    return found[0] if _own_machine(found[0]) is not False else MASK


def _site(found: re.Match[str]) -> str:
    name = found[0].lower()
    public = any(name == site or name.endswith(f".{site}") for site in _PUBLIC)
    return found[0] if public or name in {"localhost", "~"} or _own_machine(name) else MASK


def _own_machine(text: str) -> bool | None:
    """Whether an address means this machine, whichever it is; None for what is no address."""
    try:
        address = ip_address(text)
    except ValueError:
        return None
    return address.is_loopback or address.is_unspecified
