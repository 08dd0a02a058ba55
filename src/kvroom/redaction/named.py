"""Secrets that show by their name: variables, arguments, flags, keys of JSON and YAML, values of a URL query."""

from __future__ import annotations

import re

from kvroom.redaction.tokens import MASK

FLAG = r"--(?:api[-_]k(?:ey?)?|hf[-_]t(?:o(?:k(?:en?)?)?)?|ssl[-_]keyfile[-_]p[a-z]*|token)"
"""The flags whose value is a secret, also as vLLM lets them be shortened."""
_WORD = (
    r"(?i:(?P<word>(?:api )?key(?:[-_]?id| provided)?|token|secret|"
    r"passw(?:or)?d|passphrase|pwd|credentials?|signature|\bsig))"
)
_STEMS = ("token", "key", "secret", "passw", "passphrase", "pwd", "credential", "sig")
_NAMED = re.compile(
    rf"{_WORD}(?P<between>\\*[\"'`]?\]?[ \t]{{0,4}}(?::=|=>|=(?!=)|:(?!:|//))[ \t]{{0,8}}|',[ \t]{{0,4}}(?=b[\"']))"
)
"""A name that may be a secret's, up to its value."""
_FLAGGED = re.compile(
    rf"(?<!-)(?P<word>{FLAG}|--[a-z_-]{{0,40}}(?:[-_](?:key|token|secret|password|passphrase)|password))"
    r"(?P<between>[ \t]{1,4}|\\*[\"'](?:,[ \t]{0,4}|[ \t]{1,4})|=)"
    r"(?![-\\ \t]|(?:and|if|in|is|of|or|to|for|with|flag|option)\b)"
)
_LISTED = re.compile(
    r"\\*[\"']?\bname\\*[\"']?[ \t]{0,4}:[ \t]{0,4}\\*[\"']?(?P<word>[A-Za-z0-9_.-]{1,100})"
    r"(?P<between>\\*[\"']?,?[ \t]{0,4}\\*[\"']?value\\*[\"']?[ \t]{0,4}:[ \t]{0,4})"
)
"""A container's variable on one line: ``{"name": "HF_TOKEN", "value": "..."}``."""
_LEFT_OPEN = re.compile(
    rf"(?:\bname\\*[\"']?[ \t]{{0,4}}:[ \t]{{0,4}}\\*[\"']?(?P<name>[A-Za-z0-9_.-]{{1,100}})\\*[\"']?,?"
    rf"|(?<!-){FLAG}[\"']?,?)"
    r"[ \t]{0,40}\\?[ \t]{0,40}$"
)
_NEXT = re.compile(r"[^\n]{0,200}?\bvalue\\*[\"']?[ \t]{0,4}:[ \t]{0,8}|[ \t]*(?:-[ \t]{1,4})?(?=[^-\s])")
_KEY = re.compile(
    r"(?:api|access|secret|private|account|auth|signing|encryption|master|license|ssh|storage|subscription|service)"
    r"key(?:id|provided)?$"
)
_SURE_TOKEN = re.compile(
    r"(?:hf|hub|huggingface|auth|access|api|bearer|refresh|session|csrf|xsrf|security|secret|github|gitlab|gh|slack|bot"
    r"|wandb|vllm|openai|private|client|personal|registry|ngc|user|admin|service|deploy)token$"
)
_TEXT_TOKEN = re.compile(
    r"(?:bos|eos|boi|eoi|pad|unk|sep|cls|mask|image|img|video|audio|stop|special|per|first|last|next|prev|start|end|begin"
    r"|output|input|prompt|adapter|sampled|draft|bonus|think|thinking|new|generated|placeholder|vision|text|call|kv|mm)token$"
)
"""Tokens of text, which models and logs are full of."""
_OPEN_VALUE = re.compile(
    r"\\*[\"']?(?:None|null|nil|true|false|none|True|False|undefined|unset)\b(?![\w.-])"
    r"|\"\"(?!\")|''(?!')|\[[ \t]{0,4}(?:None)?[ \t]{0,4}\]"
    r"|\[?\\*[\"']?<[\w .-]{1,40}>(?=[\s\"'`,;&)\]}\\]|$)"
    r"|\$\{?[A-Za-z_][A-Za-z0-9_]{0,60}\}?(?![\w$-])"
    r"|(?:str|bool|int|bytes|dict|list|Optional|Union|SecretStr)(?=[\s\[,)|]|$)"
    r"|(?:self|args|os|cls|kwargs|config|settings|engine_args)\.[a-z]|get\w{0,40}\("
    r"|\{[ \t]{0,8}\\*[\"']|[{(\[]?[ \t]{0,40}$"
)
"""Values that are no secret: nothing, a mask or placeholder, a reference, a type, source code."""
_QUOTED = re.compile(r"(?:[A-Za-z]{1,12}\(|[bru(])?(\\*)([\"'])")
_MARKS = re.compile(r"\\.|[\"']")
"""Quotes, and characters that a backslash escapes."""
_STOP = re.compile(r"[\s\"'`]|\\[\"']|[,;&](?=[,;&]|\\*[\"']?[\w.-]{1,60}\\*[\"']?[=:]|\s|$)")
"""Where an unquoted value ends."""
_OPENING = re.compile(r"(\[?)[ \t]{0,4}(?:[A-Za-z]{1,12}\(|[bru(])?(\\*[\"'])")
_OPAQUE = re.compile(r"[(\[]?\\*[\"']?(?=[^\d\s\"']{0,99}\d)(?=[^A-Za-z\s\"']{0,99}[A-Za-z])[^\s<>|\"',;&(){}\[\]]{8,}")
"""A value without spaces, of letters and digits: where the name alone does not tell."""
_SURE, _MAYBE, _NO = 2, 1, 0


def mask_named(line: str) -> str:
    """The line with the values of secret names masked; the quotes stay, so that a dict can still be read."""
    if "name" in line and "value" in line:
        line = _mask(line, _LISTED)
    if "--" in line:
        line = _mask(line, _FLAGGED)
    lower = line.lower()
    return _mask(line, _NAMED) if any(stem in lower for stem in _STEMS) else line


def left_open(line: str) -> bool:
    """Whether the value of a secret stands on the next line: a variable in YAML, a flag's value after a line break."""
    if "name" not in line and "--" not in line:
        return False
    found = _LEFT_OPEN.search(line)
    return found is not None and (found["name"] is None or _judge(found["name"]) == _SURE)


def mask_next(line: str) -> str:
    """The line after one that is ``left_open``."""
    start = _NEXT.match(line)
    if not start or _OPEN_VALUE.match(line, start.end()):
        return line
    value = _value(line, start.end())
    return line[: start.end()] + _masked(value) + line[start.end() + len(value) :]


def _mask(line: str, pattern: re.Pattern[str]) -> str:
    parts, done, place = [], 0, 0
    while head := pattern.search(line, place):
        place = head.end()
        before = line[max(0, head.start() - 64) : head.start()]
        sure = _sure(pattern, head, before)
        if not sure or _OPEN_VALUE.match(line, place):
            continue
        if sure == _MAYBE and not _OPAQUE.match(line, place, place + 200):
            continue
        value = _value(line, place)
        if _flat(value) == _flat(re.split(r"[^\w]", before)[-1] + head["word"]):
            continue  # api_key=api_key, or the name of a flag's value in a usage text
        parts += [line[done:place], _masked(value)]
        place = done = place + len(value)
    return "".join([*parts, line[done:]])


def _value(line: str, place: int) -> str:
    """The value that starts at ``place``: a list, a quoted text or a word; to the end of the line if it is cut off."""
    quoted = _QUOTED.match(line, place)
    end = place
    if line.startswith("[", place):
        end = line.find("]", place) + 1 or len(line)
    elif quoted:
        marks = _MARKS.finditer(line, quoted.end())
        end = next(
            (mark.end() for mark in marks if mark[0] == quoted[2] or (quoted[1] and mark[0][-1] == quoted[2])),
            len(line),
        )
    if end == place or line[end : end + 1].isalnum():
        stop = _STOP.search(line, end)
        end = stop.start() if stop else len(line)
    return line[place:end]


def _flat(name: str) -> str:
    return re.sub(r"\W|_", "", name[:100]).lower()


def _sure(pattern: re.Pattern[str], head: re.Match[str], before: str) -> int:
    word = head["word"]
    if pattern is _FLAGGED:
        return _SURE if re.fullmatch(FLAG, word) else _judge(word)
    if pattern is _LISTED:
        return _judge(word)
    left = re.split(r"[^\w.-]", before)[-1]
    query = before[: len(before) - len(left)].endswith(("?", "&", ";")) and head["between"] == "="
    return _judge(left + word, query=query, assigned=head["between"].strip() == "=")


def _judge(name: str, *, query: bool = False, assigned: bool = True) -> int:
    """How sure it is that the value of ``name`` is a secret."""
    flat = re.sub(r"[-_. ]", "", name.lower())
    loud = name[-3:].isupper()
    if flat.endswith(("secret", "password", "passwd", "passphrase", "credential", "credentials")):
        return _SURE
    if flat.endswith("pwd"):
        return _NO if flat in {"pwd", "oldpwd"} else _SURE
    if flat.endswith("token"):
        if _TEXT_TOKEN.search(flat):
            return _NO
        return _SURE if query or loud or _SURE_TOKEN.search(flat) else _MAYBE
    if flat.endswith(("key", "keyid", "keyprovided")):
        named = loud and flat.endswith("key") and (assigned or "_" in name)
        return _SURE if query or named or _KEY.search(flat) else _NO
    if flat.endswith(("sig", "signature")):
        return _SURE if query or "amz" in flat or "goog" in flat else _MAYBE
    return _NO


def is_secret_flag(flag: str) -> bool:
    """Whether the value of ``flag`` is a secret.

    >>> is_secret_flag("--api-key"), is_secret_flag("--hf-token"), is_secret_flag("--tokenizer")
    (True, True, False)
    """
    return re.fullmatch(FLAG, flag) is not None


def is_secret_name(name: str) -> bool:
    """Whether a text under ``name`` is to be taken for a secret.

    >>> is_secret_name("api_key"), is_secret_name("hf-token"), is_secret_name("tokenizer"), is_secret_name("bos_token")
    (True, True, False, False)
    """
    return _judge(name[:200]) != _NO


def _masked(value: str) -> str:
    opening = _OPENING.match(value)
    if opening:
        return opening[0] + MASK + opening[2] + ("]" if opening[1] else "")
    if value.startswith("["):
        return f"[{MASK}]"
    body = value.rstrip("),]};.:")
    return MASK + value[len(body) :] if body else value
