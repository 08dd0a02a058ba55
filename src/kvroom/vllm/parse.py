"""A ``vllm serve`` command line to EngineArgs, as one release of vLLM reads it.

What the command says about memory becomes fields; other options are kept as they were written, and
options that the release does not have are reported. Nothing is filled in: that is ``defaults``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

from kvroom.errors import UsageError
from kvroom.redaction import MASK, is_secret_flag
from kvroom.vllm.args import EngineArgs
from kvroom.vllm.arguments import check_range, decides, fields_of
from kvroom.vllm.config_file import config_tokens
from kvroom.vllm.flags import FlagTable, explain_unknown, flags_for
from kvroom.vllm.items import Item, read_items
from kvroom.vllm.releases import Release
from kvroom.vllm.rules import Rules, rules_for
from kvroom.vllm.values import human_int, json_value, read_value

ReadFile = Callable[[str], str]

_ENV_PREFIXES = ("VLLM_", "HF_", "CUDA_", "PYTORCH_", "TORCH_", "NCCL_", "HIP_", "ROCR_", "TRANSFORMERS_")


def parse_serve_args(
    tokens: Sequence[str],
    env: Mapping[str, str] | None = None,
    *,
    release: Release,
    read_file: ReadFile | None = None,
) -> EngineArgs:
    """What the words after ``vllm serve``, and the environment, ask of vLLM ``release``.

    ``read_file`` gives the text of a ``--config`` file. Raises UsageError for a value that is not
    allowed, an option without its value, JSON or YAML that is broken. An option that the release does
    not have raises nothing: it is in ``unknown`` (see ``explain_unknown``).
    Mirrors utils/argparse_utils.py: FlexibleArgumentParser and engine/arg_utils.py: EngineArgs.
    """
    table, rules = _context(release)
    items = read_items(tokens, table, rules)
    if any(item.flag is not None and item.flag.name == "config" for item in items):
        tokens, items = _with_config_file(tokens, items, release, read_file)
    return _assemble(tokens, items, dict(env or {}), rules)


@cache
def _context(release: Release) -> tuple[FlagTable, Rules]:
    return flags_for(release), rules_for(release)


def _with_config_file(
    tokens: Sequence[str],
    items: list[Item],
    release: Release,
    read_file: ReadFile | None,
) -> tuple[Sequence[str], list[Item]]:
    """The command line with the file's arguments in front, so that what is written after them wins.

    A model that is written first stays first (utils/argparse_utils.py: _pull_args_from_config).
    """
    table, rules = _context(release)
    files = [item for item in items if item.flag is not None and item.flag.name == "config"]
    if len(files) > 1:
        raise UsageError("--config is given more than once.", "Give one file.")
    path = files[0].values[0]
    if read_file is None:
        raise UsageError(f"--config {path}: the file cannot be read here.", "Write its settings as flags.")
    from_file = config_tokens(read_file(path), path, table)
    if any(item.kind == "positional" for item in items):
        in_file = read_items(from_file, table, rules)
        models = [item for item in in_file if item.flag is not None and item.flag.name == "model"]
        for item in reversed(models):
            del from_file[item.start : item.end]
    rest = [*tokens[: files[0].start], *tokens[files[0].end :]]
    front = rest[:1] if rest and not rest[0].startswith("-") else []
    merged = [*front, *from_file, *rest[len(front) :]]
    return merged, read_items(merged, table, rules)


def _assemble(tokens: Sequence[str], items: list[Item], env: dict[str, str], rules: Rules) -> EngineArgs:
    given: dict[str, Any] = {}
    dotted: dict[str, dict[str, Any]] = {}
    passed: list[str] = []
    unknown: list[str] = []
    positionals: list[Item] = []
    suffixed = rules["json_suffixed_numbers"]
    for item in items:
        if item.kind == "positional":
            positionals.append(item)
        elif item.kind == "unknown" or item.flag is None:
            unknown += tokens[item.start : item.end]
        elif item.kind == "dotted":
            _set_key(dotted.setdefault(item.flag.name, {}), item, suffixed)
            if not decides(item.flag.name):
                passed += tokens[item.start : item.end]
        elif decides(item.flag.name):
            name = item.flag.name
            if item.flag.form in ("switch", "true"):
                given[name] = not item.negated
                continue
            value = read_value(item.flag, item.option, item.values, suffixed_json=suffixed)
            if value is None:
                given.pop(name, None)
            else:
                check_range(name, value, item)
                given[name] = value
        else:
            if item.values and "$" not in item.values[0]:
                read_value(item.flag, item.option, item.values, suffixed_json=suffixed)
            passed += tokens[item.start : item.end]
    given.update({name: value for name, value in dotted.items() if decides(name)})
    empty = any(token.endswith("=") and is_secret_flag(token[:-1]) for token in tokens)
    model = _model(given, positionals, hide=empty)
    fields = fields_of(given, env, rules)
    kept_env = {key: value for key, value in env.items() if key.startswith(_ENV_PREFIXES)}
    return EngineArgs(model=model, env=kept_env, given=given, passed=tuple(passed), unknown=tuple(unknown), **fields)


def _set_key(target: dict[str, Any], item: Item, suffixed: bool) -> None:
    """Put a dotted argument's value where its keys say; lists given with ``+`` grow."""
    text = item.values[0]
    value: Any
    if item.adds:
        value = text.split(",")
    else:
        try:
            value = json_value(text, item.option)
        except UsageError:
            value = text
            if suffixed:
                try:
                    value = human_int(text)
                except UsageError:
                    value = text
    for key in item.keys[:-1]:
        inner = target.get(key)
        if not isinstance(inner, dict):
            inner = target[key] = {}
        target = inner
    last = item.keys[-1]
    if isinstance(value, list) and isinstance(target.get(last), list):
        target[last] = [*target[last], *value]
    else:
        target[last] = value


def _model(given: dict[str, Any], positionals: list[Item], *, hide: bool) -> str:
    """The model that the line names: ``--model``, else the first word that belongs to no option.

    With ``hide`` a word may be the secret of a flag that it stands apart from, and is not shown.
    """
    words = [item.option for item in positionals]
    model = str(given.pop("model")) if "model" in given else words.pop(0) if words else ""
    if words:
        word, name = (MASK, MASK) if hide else (words[0][:60], model[:60])
        raise UsageError(
            f"'{word}' belongs to no option, and the model is '{name}' already.",
            "Write --flag value, or quote a value that has spaces.",
        )
    return model


def unknown_notes(args: EngineArgs, release: Release) -> tuple[str, ...]:
    """One sentence for each option of ``args`` that ``release`` lacks (see ``explain_unknown``)."""
    return tuple(explain_unknown(word, release) for word in args.unknown if word.startswith("-"))
