"""What the commands do once their arguments are read. Loaded only when a command runs."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kvroom.cli.options import variables
from kvroom.cli.output import show, write, write_json
from kvroom.devices.names import parse_memory
from kvroom.errors import UsageError, short
from kvroom.files import reason, too_large
from kvroom.ledger.verdict import Status
from kvroom.plans.make import plan_tokens
from kvroom.plans.plan import Plan
from kvroom.plans.request import ENTRIES, Request

if TYPE_CHECKING:
    from rich.console import Console

_LONGEST = 4_000_000
"""Bytes of a file that are looked at; what is longer is no launch script."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """The shared options as they were written."""

    gpu: str | None
    gpu_memory: str | None
    free_memory: str | None
    vllm: str | None
    assume_quantization: str | None
    measured: tuple[str, ...]
    measured_with: str | None
    without: tuple[str, ...]
    env: tuple[str, ...]
    offline: bool
    learned: bool = True

    def request(self) -> Request:
        """The options as ``plans`` takes them; UsageError when a measured entry is malformed."""
        return Request(
            gpu=self.gpu,
            gpu_memory=self.gpu_memory,
            free_memory=self.free_memory,
            vllm=self.vllm,
            assume_quantization=self.assume_quantization,
            measured=_measured(self.measured),
            measured_with=self.measured_with,
            offline=self.offline,
            without=self.without,
            learned=self.learned,
        )


def _measured(items: tuple[str, ...]) -> dict[str, int]:
    entries: dict[str, int] = {}
    for item in items:
        name, equals, size = item.partition("=")
        if not equals or name not in ENTRIES:
            raise UsageError(
                f"--measured {short(item)}: not an entry of the ledger with its size.",
                f"Write NAME=SIZE with a name of {', '.join(ENTRIES)}, e.g. --measured activation=1.42GiB.",
            )
        entries[name] = parse_memory(size, least=0)
    return entries


def one(args: Sequence[str], asked: Asked) -> Plan:
    """The plan of the arguments of ``kvroom plan``."""
    if list(args[:2]) == ["vllm", "serve"]:
        args = args[2:]
    return plan_tokens(args, variables(asked.env), asked.request())


def many(args: Sequence[str], asked: Asked) -> tuple[list[Plan], bool]:
    """The plans of a command or of files, and whether they came from files."""
    from kvroom.plans.check import check_text, check_words

    if not args:
        raise UsageError("Nothing to check.", "Give files, or a command after `--`: kvroom check -- vllm serve ...")
    env, request = variables(asked.env), asked.request()
    if len(args) == 1 and " " in args[0] and not _is_file(args[0]):
        plans = check_text(args[0], env, request)
        return plans, len(plans) > 1
    if not _are_files(args):
        return check_words(args, env, request), False
    return [plan for name in args for plan in check_text(_read_file(name), env, request, name)], True


def _are_files(args: Sequence[str]) -> bool:
    """Whether ``args`` name files, not the words of a command (whose program may be a file as well)."""
    from kvroom.launches.read import starts_command

    if starts_command(args):
        return False
    return args[0] == "-" or len(args) == 1 or _is_file(args[0]) or not any(arg.startswith("-") for arg in args)


def _is_file(name: str) -> bool:
    try:
        return Path(name).is_file()
    except (OSError, ValueError):  # too long for a path
        return False


def _read_file(name: str) -> str:
    """The text of a file, a pipe or (``-``) the standard input; UsageError where it cannot be had."""
    try:
        if name == "-":
            data = sys.stdin.buffer.read(_LONGEST + 1)
        else:
            with Path(name).open("rb") as file:
                data = file.read(_LONGEST + 1)
        if len(data) > _LONGEST:
            raise too_large(_LONGEST)
        return data.decode("utf-8-sig")
    except (OSError, ValueError) as error:
        shown = "The standard input" if name == "-" else short(name)
        raise UsageError(
            f"{shown} cannot be read: {reason(error)}.",
            "Give a text file with a launch command, or a command after `--`.",
        ) from None


def print_plans(plans: list[Plan], *, as_json: bool, explain: bool, many: bool) -> None:
    """Print plans as text, or as JSON: one object for a command, a list for files."""
    if as_json:
        from kvroom.report.as_json import plan_data

        data = [plan_data(plan) for plan in plans]
        write_json(data if many else data[0])
        return
    from kvroom.report.as_text import print_plan

    def draw(console: Console) -> None:
        for number, plan in enumerate(plans):
            if number:
                console.print()
            print_plan(plan, console, explain=explain)

    show(draw)


def exit_code(plans: list[Plan]) -> int:
    """0 when every launch fits, 1 when one fails, else 3."""
    statuses = {plan.verdict.status for plan in plans}
    if Status.FAILS in statuses:
        return 1
    return 0 if statuses <= {Status.FITS} else 3


def print_rule(code: str | None) -> None:
    """Print one finding's explanation, or the list of all."""
    from kvroom.findings.catalogue import all_rules, rule

    if code is None:
        write("".join(f"{item.code}  {item.name}: {item.summary}\n" for item in all_rules()))
        return
    item = rule(code)
    write(f"# {item.code} {item.name}\n\n{item.explanation.strip()}\n")
