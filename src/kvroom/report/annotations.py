"""A check as workflow commands, which GitHub shows beside the lines of a pull request."""

from __future__ import annotations

from collections.abc import Sequence

from kvroom.plans.check import Item
from kvroom.report.remarks import Remark, remarks_on

_COMMANDS = {"error": "error", "warning": "warning", "note": "notice"}
_LONGEST = 2000
"""Characters of a message; longer ones are cut off by the page anyway."""


def workflow_commands(items: Sequence[Item]) -> str:
    """One ``::error file=...,line=...,title=...::text`` a remark, ready to be printed."""
    return "".join(_command(remark) + "\n" for remark in remarks_on(items))


def _command(remark: Remark) -> str:
    properties = {"title": f"kvroom: {remark.title}"}
    if remark.source and remark.source != "-":
        properties = {"file": remark.source.removeprefix("./"), "line": str(remark.line), **properties}
    told = ",".join(f"{name}={_property(value)}" for name, value in properties.items())
    return f"::{_COMMANDS[remark.level]} {told}::{_data(remark.message[:_LONGEST])}"


def _data(text: str) -> str:
    r"""``text`` as the value of a command.

    >>> _data("100 %\nof it")
    '100 %25%0Aof it'
    """
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    """``text`` as a property, where colons and commas have a meaning."""
    return _data(text).replace(":", "%3A").replace(",", "%2C")
