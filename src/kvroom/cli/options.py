"""The options that commands share, and what their values say."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

from kvroom.errors import UsageError, short

F = TypeVar("F", bound=Callable[..., Any])
PASS_ON = {"ignore_unknown_options": True, "help_option_names": ["--help"]}

_OPTIONS = (
    click.option("--gpu", help="The card, e.g. 'RTX 4090' or '2x H100'. Default: the GPUs here."),
    click.option("--gpu-memory", help="Total memory of one card, where it differs, e.g. 23.6GiB."),
    click.option("--free-memory", help="Free memory of one card before the launch."),
    click.option("--vllm", help="vLLM release whose rules to use. Default: the installed one, else the newest known."),
    click.option(
        "--assume-quantization", help="Price the model as if its weights were stored so: awq, fp8, w4a16, ..."
    ),
    click.option(
        "--measured",
        multiple=True,
        help="A ledger entry that a log of this machine printed, e.g. activation=1.42GiB.",
    ),
    click.option(
        "--measured-with",
        help="Flags under which available=SIZE was logged, if they differ: '--attention-backend FLASH_ATTN'.",
    ),
    click.option(
        "--no-learned",
        "learned",
        flag_value=False,
        default=True,
        help="Plan without what `kvroom learn` kept of such a machine.",
    ),
    click.option("--without", multiple=True, help="A package that the vLLM environment lacks, e.g. flashinfer."),
    click.option("--env", multiple=True, help="An environment variable of the launch, NAME=VALUE."),
    click.option("--offline", is_flag=True, help="Read nothing from the hub."),
    click.option("--json", "as_json", is_flag=True, help="Print JSON (schema kvroom/1)."),
    click.option("--explain", is_flag=True, help="Show every rule used, with its source."),
)


_FORM = (
    click.option(
        "--format",
        "form",
        type=click.Choice(["text", "json", "github"]),
        help="text (default), json, or github: Markdown, ready to paste into an issue.",
    ),
    click.option("--json", "as_json", is_flag=True, help="Print JSON (schema kvroom/1)."),
)


_CHECK = (
    click.option(
        "--format",
        "form",
        type=click.Choice(["text", "json", "sarif", "github"]),
        help="text (default), json, sarif for code scanning, or github: annotations of a workflow.",
    ),
    click.option(
        "--assume-model",
        multiple=True,
        help="The checkpoint at a path that is not here, MODEL or PATH=MODEL, e.g. /models/llama=Qwen/Qwen3-8B.",
    ),
    click.option("--allow-none", is_flag=True, help="Files that start no vLLM are no error, as in a folder."),
)


def shared(command: F) -> F:
    """``command`` with the options of ``plan`` and ``check``; everything else on their line is vLLM's."""
    return _with(_OPTIONS, command)


def check_options(command: F) -> F:
    """``command`` with the options of ``check`` alone."""
    return _with(_CHECK, command)


def emits(command: F) -> F:
    """``command`` with the choice of a deployment to write instead of the answer."""
    option = click.option(
        "--emit",
        type=click.Choice(["command", "docker", "compose", "k8s"]),
        help="Write the deployment instead: a command, docker run, a compose file, Kubernetes objects.",
    )
    return _with((option,), command)


def formats(command: F) -> F:
    """``command`` with the choice of a format."""
    return _with(_FORM, command)


def _with(options: Sequence[Callable[[F], F]], command: F) -> F:
    for option in reversed(options):  # in the order in which help lists them
        command = option(command)
    return command


def chosen(form: str | None, as_json: bool) -> str:
    """The format; UsageError where two are asked for."""
    if as_json and form not in {None, "json"}:
        raise click.UsageError(f"--json and --format {form} cannot both be had.")
    return "json" if as_json else form or "text"


def variables(items: Sequence[str]) -> dict[str, str]:
    """The environment variables of ``--env``; UsageError when one is not NAME=VALUE."""
    found: dict[str, str] = {}
    for item in items:
        name, equals, value = item.partition("=")
        if not equals or not name:
            raise UsageError(f"--env {short(item)}: not NAME=VALUE.")
        found[name] = value
    return found


class PassesOn(click.Command):
    """A command whose unknown options are vLLM's; ``-h`` helps only alone, since ``-O.cudagraph_mode`` holds one."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """As click does."""
        return super().parse_args(ctx, ["--help"] if args == ["-h"] else args)
