"""``anonymous``: a text without secrets and without who and where it comes from, fit for a public ticket.

Users, hosts, addresses, e-mails and GPU identifiers become masks. The same value gets the same mask, so that a reader
can still tell two hosts apart. Loopback addresses, ports, versions, paths below a home and model ids stay.
"""

from __future__ import annotations

import ipaddress
import re

from kvroom.redaction.cleaning import Cleaner, mask_secrets, plain, settle

_USER = "<user>"
_PATH_EDGE = r"(?:(?<![\w./~-])|(?<=\\[nrt])|(?<=[\[;]\dm)|(?<=file://)|(?<=-[ILBF]))"
_HOME = re.compile(_PATH_EDGE + r"((?:/[\w.-]{1,30}){0,3}?/(?:home|Users)/)[^/\s\"'`<>:,;|(){}\[\]\\]{1,64}")
_WINDOWS_HOME = re.compile(
    r"((?<![A-Za-z])[A-Za-z]:[\\/]{1,4}(?i:Users)[\\/]{1,4})"
    r"(?:[^\\/:*?\"'<>|,;\n]{1,64}(?=[\\/])|[^\\/:*?\"'<>|,;\s]{1,64})"
)
_LOGIN = re.compile(
    r"((?<![A-Za-z0-9])(?:(?:SUDO_)?USER(?:NAME)?|LOGNAME)=[\"']?|/torchinductor_)(?!root\b)[A-Za-z_][\w.-]{0,63}"
)
_SYSLOG = re.compile(
    r"^((?:<\d{1,3}>)?(?:[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d(?:\.\d{1,9})?(?: \d{4})?"
    r"|\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?) )"
    r"(?!(?:TRACE|DEBUG|INFO|WARN|WARNING|ERROR|CRITICAL|FATAL)\b)([A-Za-z0-9][A-Za-z0-9.-]{0,252})"
    r"(?= [\w./@:-]{1,64}(?:\[\d{1,10}\])?:)"
)
_NCCL = re.compile(r"(?<![\w.-])(?:\[\d{1,4}\] )?([A-Za-z0-9][\w.-]{0,252})(?=:\d{1,8}:\d{1,8} \[-?\w{1,4}\] )")
_HOST_KEY = re.compile(
    r"((?<![A-Za-z0-9])(?i:host[-_ ]?name|node[-_]?name|slurmd_nodename|master[-_]addr|node(?==)|host(?=[\"'=]))"
    r"\\*[\"']?[ \t]{0,4}[:=][ \t]{0,8}\\*[\"']?|--(?:host|master-addr|node-name)[ \t]{1,4})"
    r"(?!(?i:localhost|none|null|true|false|auto|unknown|not|is|of)(?![\w.-]))"
    r"(?=[0-9.-]{0,63}[A-Za-z])([A-Za-z0-9][A-Za-z0-9.-]{0,252})(?![\w(])"
)
_POD = re.compile(r"(\[?\bpod/)([a-z0-9][a-z0-9.-]{0,252})")
_PEER = re.compile(r"(\[(?=[\w.-]{1,64}\])|tcp://(?!localhost\b))([A-Za-z][A-Za-z0-9.-]{0,63})(?=\]?:\d{2,5}\b)")
_ZONE = re.compile(
    r"(?<![\w.-])(?!threading\.local|settings\.local)"
    r"((?:[A-Za-z0-9-]{1,63}\.){1,10}(?i:internal|local|localdomain|lan|corp|intranet|svc))(?![\w(-]|\.\w)"
)
_CLOUD = re.compile(r"(?<![\w.-])(ip(?:-\d{1,3}){4}|ec2(?:-\d{1,3}){4}[A-Za-z0-9.-]{0,200}\.amazonaws\.com)(?![\w-])")
_SSH = re.compile(
    r"(?<![\w.+/@:-])([A-Za-z_][\w.-]{0,31})@([A-Za-z0-9][A-Za-z0-9.-]{0,62})"
    r"(?=:[~/]|[ \t][^\n\]]{1,80}\][#$]|[#$][ \t])"
)
_SSH_COMMAND = re.compile(
    r"(\b(?:ssh|scp|sftp|rsync|ssh-copy-id)[ \t][^\n@]{0,160}?)(?<![\w.-])"
    r"([A-Za-z_][\w.-]{0,31})@([A-Za-z0-9][A-Za-z0-9.-]{0,62})"
)
_AT_MASK = re.compile(r"(?<![\w.+/@-])(?!root@|git@)[A-Za-z_][\w.-]{0,31}@(?=<(?:address|host)-\d)")
_EMAIL = re.compile(
    r"(?<![\w.+%-])(?!git@)[A-Za-z0-9._%+-]{1,64}@(?:[A-Za-z0-9-]{1,63}\.){1,8}[A-Za-z]{2,24}(?![\w-]|\.\w)"
)
_GPU = re.compile(
    r"(?<![A-Za-z0-9])((?:MIG-)?GPU-[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{1,12}){0,4}(?![\w-])|MIG-[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{1,12}){4})"
)
_MAC = re.compile(r"(?<![\w:-])((?:[0-9A-Fa-f]{2}:){5}[0-9A-Fa-f]{2}|(?:[0-9A-Fa-f]{2}-){5}[0-9A-Fa-f]{2})(?![\w:-])")
_OCTET = r"(?:25[0-5]|2[0-4]\d|1?\d?\d)"
_IPV4 = re.compile(rf"(?:(?<![\w.])|(?<=[_-])|(?<=\\[nrt]))({_OCTET}(?:\.{_OCTET}){{3}})(?![\w]|\.\d)")
_IPV6 = re.compile(r"(?<![\w:.])((?:[0-9A-Fa-f]{0,4}:){2,7}[0-9A-Fa-f]{0,4})(?:%\w{1,16})?(?![\w:])")
_BEFORE_VERSION = re.compile(
    r"(?:(?i:\b(?:v|ver|versions?|release|build|driver|cudnn|cublas\w*|nccl|rccl|tensorrt|nvidia-[\w-]{1,40}))|-cu\d\d"
    r"|[=<>~!]=)[\"'()]{0,2}[ \t:=~<>!]{0,12}$"
)
"""What stands before four numbers that are a version."""
_PRIVATE = re.compile(r"10\.|192\.168\.|172\.(?:1[6-9]|2\d|3[01])\.")


class Anonymizer:
    """``anonymous`` over a stream of lines: the masks are numbered across calls."""

    def __init__(self) -> None:
        self._cleaner = Cleaner()
        self._masks: dict[tuple[str, str], str] = {}
        self._counts: dict[str, int] = {}

    def __call__(self, text: str) -> str:
        """``text`` without secrets, control characters, people and places; it keeps its lines."""
        return "\n".join(map(self._line, plain(text).split("\n")))

    def _line(self, line: str) -> str:
        return settle(self._cleaner.line(line), self._pass)

    def _pass(self, line: str) -> str:
        masked = self._places(line)
        return line if masked == line else mask_secrets(masked)

    def _places(self, line: str) -> str:
        """One pass over a line."""
        if "/home/" in line or "/Users/" in line:
            line = _HOME.sub(rf"\1{_USER}", line)
        lower = line.lower()
        if "users" in lower:
            line = _WINDOWS_HOME.sub(lambda match: match[1] + _USER, line)
        if "USER" in line or "LOGNAME" in line or "torchinductor_" in line:
            line = _LOGIN.sub(rf"\1{_USER}", line)
        if "@" in line:
            line = self._people(line)
        if "gpu-" in lower or "mig-" in lower:
            line = _GPU.sub(lambda match: self._mask("gpu", match[1]), line)
        if ":" in line or "-" in line:
            line = _MAC.sub(lambda match: self._mask("mac", match[1]), line)
        if line.count(".") >= 3:
            line = _IPV4.sub(self._ipv4, line)
        if "::" in line or line.count(":") >= 7:
            line = _IPV6.sub(self._ipv6, line)
        line = self._hosts(line, lower)
        return _AT_MASK.sub(f"{_USER}@", line) if "@<" in line else line

    def _people(self, line: str) -> str:
        line = _SSH_COMMAND.sub(lambda match: match[1] + self._login(match[2], match[3]), line)
        line = _SSH.sub(lambda match: self._login(match[1], match[2]), line)
        return _EMAIL.sub("<email>", line)

    def _login(self, user: str, host: str) -> str:
        shown = user if user in {"root", "git"} else _USER
        if host == "localhost" or host.endswith(("github.com", "gitlab.com", "huggingface.co", "hf.co")):
            return f"{shown}@{host}"
        is_address = re.fullmatch(r"[\d.]+", host) is not None
        return f"{shown}@{host if is_address else self._mask('host', host)}"

    def _hosts(self, line: str, lower: str) -> str:
        line = _SYSLOG.sub(lambda match: match[1] + self._mask("host", match[2]), line)
        if "] " in line:
            line = _NCCL.sub(lambda match: match[0].replace(match[1], self._mask("host", match[1])), line)
        if "host" in lower or "node" in lower or "addr" in lower:
            line = _HOST_KEY.sub(lambda match: match[1] + self._mask("host", match[2]), line)
        if "pod/" in line:
            line = _POD.sub(lambda match: match[1] + self._mask("pod", match[2]), line)
        if "]:" in line or "tcp:" in line:
            line = _PEER.sub(lambda match: match[1] + self._mask("host", match[2]), line)
        if any(zone in lower for zone in (".internal", ".local", ".lan", ".corp", ".intranet", ".svc")):
            line = _ZONE.sub(lambda match: self._mask("host", match[1]), line)
        if "ip-" in lower or "ec2-" in lower:
            line = _CLOUD.sub(lambda match: self._mask("host", match[1]), line)
        return line

    def _ipv4(self, match: re.Match[str]) -> str:
        address, line, start = match[1], match.string, match.start()
        if address.startswith(("127.", "0.")) or address == "255.255.255.255":
            return match[0]
        before = line[max(0, start - 64) : start]
        if _BEFORE_VERSION.search(before) or (before.endswith(("-", "_")) and not _PRIVATE.match(address)):
            return match[0]
        return self._mask("address", address)

    def _ipv6(self, match: re.Match[str]) -> str:
        if not any(character.isdigit() for character in match[1]) or match[1].startswith(("c10::", "c10d::")):
            return match[0]  # a C++ name
        try:
            address = ipaddress.IPv6Address(match[1])
        except ValueError:
            return match[0]
        return match[0] if address.is_loopback or address.is_unspecified else self._mask("address", str(address))

    def _mask(self, kind: str, value: str) -> str:
        key = (kind, value.lower())
        if key not in self._masks:
            self._counts[kind] = self._counts.get(kind, 0) + 1
            self._masks[key] = f"<{kind}-{self._counts[kind]}>"
        return self._masks[key]


def anonymous(text: str) -> str:
    """``text`` without secrets, control characters, people and places; it keeps its lines."""
    return Anonymizer()(text)
