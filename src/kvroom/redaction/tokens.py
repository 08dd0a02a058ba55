"""Secrets that show by their own shape: tokens of known issuers, credentials in URLs and headers.

Every pattern works on one line and is linear: a repetition never holds another one over the same characters.
"""

from __future__ import annotations

import re

MASK = "<redacted>"

EDGE = r"(?:(?<![A-Za-z0-9])|(?<=\\[nrt])|(?<=\[0m)|(?<=[\[;]\dm)|(?<=[\[;]\d\dm))"
"""The start of a word; also after an escaped line end (a log line inside JSON) or an escaped colour code."""

_STARTS = (
    "hf_ api_org_ sk- ghp_ gho_ ghu_ ghs_ ghr_ github_pat_ gl xox xapp- AKIA ASIA ABIA ACCA AIza ya29. nvapi- gsk_ npm_"
    " r8_ rpa_ dckr_pat_ pypi- hvs. xai- pplx- eyJ"
).split()
_TOKEN = re.compile(
    EDGE
    + r"(?:"
    + "|".join(
        (
            # hf_ begins ordinary names as well (hf_config, hf_transfer): a token has a digit, a capital, or is long.
            r"hf_(?=[a-z]{0,64}[A-Z0-9]|[a-z]{12,}(?![a-z_]))[A-Za-z0-9]{6,}",
            r"api_org_[A-Za-z0-9]{8,}",
            r"sk-(?!learn)[A-Za-z0-9_-]{6,}",
            r"gh[pousr]_[A-Za-z0-9]{10,}",
            r"github_pat_[A-Za-z0-9_]{10,}",
            r"gl(?:pat|dt|rt|rtr|cbt|ptt|ft|imt|agent|soat|oas)-[A-Za-z0-9_.-]{8,}",
            r"(?:xox[a-z]|xapp)-[A-Za-z0-9-]{8,}",
            r"A(?:KIA|SIA|BIA|CCA)[A-Z0-9]{12,}",
            r"AIza[A-Za-z0-9_-]{16,}",
            r"ya29\.[A-Za-z0-9_-]{10,}",
            r"nvapi-[A-Za-z0-9_-]{8,}",
            r"(?:gsk|npm|r8|rpa)_[A-Za-z0-9]{20,}",
            r"(?:dckr_pat_|pypi-|hvs\.|xai-|pplx-)[A-Za-z0-9_-]{20,}",
            r"eyJ[A-Za-z0-9_=-]{10,}(?:\.{1,2}[A-Za-z0-9_=-]+)*",
        )
    )
    + r")"
)
_URL_USER = re.compile(r"(?<=://)(?:[^\s/\"'<>]{1,300}|[^\s/:@\"'<>]{1,100}:(?!\d{1,5}[/\s])[^\s@\"'<>]{1,100})@")
"""User and password of a URL, up to the last ``@`` before the path."""
_PAIR = r"(?:\\*[\"'`]?[ \t]{0,4}[:=][ \t]{0,8}|[\"'],[ \t]{0,4}(?=b[\"']))(?:b(?=[\"']))?\\*[\"']?"
"""Between the name of a header and its value, also in a dict or a list of byte pairs."""
_HEADER = re.compile(rf"(?i:authorization{_PAIR})")
_SCHEME = re.compile(r"(?i:bearer|basic|token|apikey|negotiate)[ \t]{1,4}")
_NO_VALUE = re.compile(rf"{MASK}|\s|(?:None|null|True|False)\b")
_ONE_WORD = re.compile(r"[^\s\"'`,;)\]}\\]+")
_REST = re.compile(r"[^\"'\n\\]+")
_COOKIE = re.compile(rf"(?i:((?:set-)?cookies?{_PAIR}))(?!{MASK}|None\b|null\b)(\{{[^}}\n]*|[^\"'\n\\]+)")
_BEARER = re.compile(
    r"(?i:(\bbearer[ \t]{1,4}))"
    r"(?=[A-Za-z._~+/=-]{0,60}[0-9]|[a-z]{0,60}[A-Z][a-z]{0,60}[A-Z]|\S{20})[A-Za-z0-9._~+/=-]{6,}"
)
_WANDB = re.compile(r"(?i:(wandb[^\n@]{0,80}?))(?<![0-9a-f])[0-9a-f]{40}(?![0-9a-f])")
_NETRC = re.compile(rf"(\blogin[ \t]{{1,4}}\S{{1,200}}[ \t]{{1,4}}password[ \t]{{1,4}})(?!{MASK})\S+")
_WEBHOOK = re.compile(r"(?<=hooks\.slack\.com/services/)[A-Za-z0-9/]{8,}")


def mask_tokens(line: str) -> str:
    """The line without secrets that show by their shape."""
    lower = line.lower()
    if "authorization" in lower:
        line = _headers(line)
    if "cookie" in lower:
        line = _COOKIE.sub(_cookie, line)
    if "bearer" in lower:
        line = _BEARER.sub(rf"\1{MASK}", line)
    if "wandb" in lower:
        line = _WANDB.sub(rf"\1{MASK}", line)
    if "password" in lower:
        line = _NETRC.sub(rf"\1{MASK}", line)
    if "hooks.slack" in lower:
        line = _WEBHOOK.sub(MASK, line)
    if "://" in line and "@" in line:
        line = _URL_USER.sub(f"{MASK}@", line)
    return _TOKEN.sub(MASK, line) if any(start in line for start in _STARTS) else line


def _cookie(match: re.Match[str]) -> str:
    end = match[2].rstrip(")]}, ")
    return f"{match[1]}{MASK}{match[2][len(end) :]}" if end else match[0]


def _headers(line: str) -> str:
    """The line with the credentials of authorization headers masked; one word of them where the scheme is known."""
    parts, done = [], 0
    for head in _HEADER.finditer(line):
        scheme = _SCHEME.match(line, head.end())
        start = scheme.end() if scheme else head.end()
        if start < done or _NO_VALUE.match(line, start):
            continue
        value = (_ONE_WORD if scheme else _REST).match(line, start)
        length = len(value[0].rstrip(")]}, ")) if value else 0
        if length:
            parts += [line[done:start], MASK]
            done = start + length
    return "".join([*parts, line[done:]])
