"""What the commands do once their arguments are read. Loaded only when a command runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kvroom.cli.options import variables
from kvroom.cli.output import show, write, write_json
from kvroom.devices.names import parse_memory
from kvroom.errors import UsageError, short
from kvroom.launches.launch import Unread
from kvroom.ledger.verdict import Status
from kvroom.plans.make import plan_tokens
from kvroom.plans.plan import Plan
from kvroom.plans.request import ENTRIES, Request

if TYPE_CHECKING:
    from rich.console import Console

    from kvroom.cli.check_inputs import Checked
    from kvroom.plans.check import Item


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


def many(args: Sequence[str], asked: Asked, models: Sequence[str] = (), *, allow_none: bool = False) -> Checked:
    """What is said of a command, or of each launch in files and folders.

    ``models`` are ``--assume-model``. With ``allow_none`` files that start no server are no error.
    """
    from kvroom.cli.check_inputs import Checked, assumed_models, files
    from kvroom.plans.check import check_text, check_words

    if not args:
        raise UsageError("Nothing to check.", "Give files, or a command after `--`: kvroom check -- vllm serve ...")
    env, request = variables(asked.env), asked.request()
    if len(args) == 1 and " " in args[0] and not _is_path(args[0]):
        plans = check_text(args[0], env, request)
        return Checked([*plans], len(plans) > 1)
    if not _are_files(args):
        return Checked([*check_words(args, env, request)])
    return files(args, env, request, assumed_models(models), allow_none=allow_none)


def _are_files(args: Sequence[str]) -> bool:
    """Whether ``args`` name files, not the words of a command (whose program may be a file as well)."""
    from kvroom.launches.read import starts_command

    if starts_command(args):
        return False
    return args[0] == "-" or len(args) == 1 or _is_path(args[0]) or not any(arg.startswith("-") for arg in args)


def _is_path(name: str) -> bool:
    try:
        return Path(name).is_file() or Path(name).is_dir()
    except (OSError, ValueError):  # too long for a path
        return False


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


def print_deployment(plan: Plan, kind: str, *, as_json: bool) -> None:
    """Print the deployment of ``plan``; UsageError where there is none, or JSON is asked for as well."""
    from kvroom.deploy import emit

    if as_json:
        raise UsageError("--json and --emit cannot both be had.", "Ask for the plan and the deployment apart.")
    write(emit(plan, kind))


def print_checked(checked: Checked, form: str, *, explain: bool) -> None:
    """Print what was checked as text, JSON, SARIF or annotations."""
    if form == "json":
        from kvroom.report.checked import item_data

        data = [item_data(item) for item in checked.items]
        write_json(data if checked.files else data[0])
    elif form == "sarif":
        from kvroom.report.sarif import sarif_data

        write_json(sarif_data(checked.items))
    elif form == "github":
        from kvroom.report.annotations import workflow_commands

        write(workflow_commands(checked.items))
    else:
        from kvroom.report.checked import print_items

        show(lambda console: print_items(checked.items, console, explain=explain, short=checked.folder))


def exit_code(items: Sequence[Item]) -> int:
    """1 when a launch fails, else 2 when something cannot be read, else 3 unless every launch fits."""
    statuses = {item.verdict.status for item in items if isinstance(item, Plan)}
    if Status.FAILS in statuses:
        return 1
    if any(isinstance(item, Unread) for item in items):
        return 2
    return 0 if statuses <= {Status.FITS} and all(isinstance(item, Plan) for item in items) else 3


def print_rule(code: str | None) -> None:
    """Print one finding's explanation, or the list of all."""
    from kvroom.findings.catalogue import all_rules, rule

    if code is None:
        write("".join(f"{item.code}  {item.name}: {item.summary}\n" for item in all_rules()))
        return
    item = rule(code)
    write(f"# {item.code} {item.name}\n\n{item.explanation.strip()}\n")
