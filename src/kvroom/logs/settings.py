"""The settings that a log shows: the arguments that were given, and the configuration that the engine printed."""

from __future__ import annotations

import ast
import math
import re
import shlex
import warnings
from collections.abc import Mapping
from typing import Any

from kvroom.logs.facts import Fact, Facts
from kvroom.redaction import MASK, is_secret_name

_PAIR = re.compile(r"(?:^|[,\s(])(\w{2,60})=")
_PROMPT = re.compile(
    r"\s{0,8}(?:\S{0,80}[$#>%]\s)?(?:\w{1,60}=\S{0,200}\s)*(?:\S{0,200}/)?(?:vllm serve|python3? -m vllm)"
)
"""How a line begins that shows the command, after a shell's prompt or without one."""
_ENGINE_NAMES = {
    "max_seq_len": "max_model_len",
    "model": "model",
    "dtype": "dtype",
    "tensor_parallel_size": "tensor_parallel_size",
    "pipeline_parallel_size": "pipeline_parallel_size",
    "data_parallel_size": "data_parallel_size",
    "quantization": "quantization",
    "enforce_eager": "enforce_eager",
    "kv_cache_dtype": "kv_cache_dtype",
    "enable_prefix_caching": "enable_prefix_caching",
    "chunked_prefill_enabled": "enable_chunked_prefill",
    "enable_chunked_prefill": "enable_chunked_prefill",
    "tokenizer_mode": "tokenizer_mode",
    "trust_remote_code": "trust_remote_code",
    "speculative_config": "speculative_config",
    "load_format": "load_format",
}
"""What the engine's configuration line calls the arguments of ``vllm serve``."""
_NOT_FLAGS = frozenset(
    {"model", "model_tag", "host", "port", "api_key", "subparser", "config", "dispatch_function", "ssl_keyfile"}
)
_LONGEST = 60_000


def given_settings(facts: Facts) -> dict[str, Any]:
    """The arguments that differ from the defaults, by vLLM's names, as the server printed them."""
    for fact in reversed(facts.all("args_non_default", "args_namespace")):
        text = fact.values["args"]
        found = _dict(text) if fact.id == "args_non_default" else _namespace(text)
        if found:
            return found
    return {}


def engine_settings(facts: Facts) -> dict[str, Any]:
    """What the engine printed of its configuration, under the names of ``vllm serve``."""
    fact = facts.last("engine_v1", "engine_v0")
    if fact is None:
        return {}
    dump = _keywords(fact.values["config"])
    found = {name: dump[key] for key, name in _ENGINE_NAMES.items() if key in dump}
    dtype = found.get("dtype")
    if isinstance(dtype, str):
        found["dtype"] = dtype.removeprefix("torch.")
    return found


def command_words(facts: Facts) -> list[str]:
    """The words after ``vllm serve`` where the log shows the command itself."""
    for fact in facts.all("command_line"):
        if not _PROMPT.match(fact.text):
            continue
        try:
            return shlex.split(fact.values["args"])
        except ValueError:
            return fact.values["args"].split()
    return []


def words_of(given: Mapping[str, Any], model: str | None) -> list[str]:
    """The words after ``vllm serve`` that ``given`` amounts to."""
    words = [model] if model else []
    for name, value in given.items():
        flag = "--" + name.replace("_", "-")
        if name in _NOT_FLAGS or value is None or value in ("", []):
            continue
        if value is True:
            words.append(flag)
        elif value is False:
            words.append("--no-" + name.replace("_", "-"))
        elif isinstance(value, dict):
            words += [flag, _json(value)]
        elif isinstance(value, list | tuple):
            words += [flag, *map(str, value)]
        elif isinstance(value, str | int | float):
            words += [flag, str(value)]
    return words


def _json(value: dict[Any, Any]) -> str:
    import json

    return json.dumps(value, default=str)


def _dict(text: str) -> dict[str, Any]:
    """The dictionary that ``text`` begins with, also where it is cut or holds what is no literal."""
    text = text[:_LONGEST]
    found = _literal(text)
    if isinstance(found, dict):
        return {str(name): value for name, value in found.items()}
    return _pairs(text, _ENTRY)


def _namespace(text: str) -> dict[str, Any]:
    """The arguments of ``Namespace(...)`` that are set; defaults cannot be told apart from them."""
    found = {name: value for name, value in _keywords(text).items() if value not in (None, False, [], "", "auto")}
    return {name: value for name, value in found.items() if name in _NAMESPACE_KEPT}


_NAMESPACE_KEPT = frozenset(
    """model model_tag dtype max_model_len gpu_memory_utilization max_num_seqs max_num_batched_tokens quantization
    tensor_parallel_size pipeline_parallel_size kv_cache_dtype enforce_eager trust_remote_code enable_prefix_caching
    enable_chunked_prefill block_size swap_space cpu_offload_gb num_gpu_blocks_override max_seq_len_to_capture
    enable_lora max_loras max_lora_rank limit_mm_per_prompt served_model_name load_format tokenizer_mode
    disable_custom_all_reduce speculative_model num_speculative_tokens revision""".split()
)
_NOTHING, _NO_LITERAL = object(), object()
_ENTRY = re.compile(r"'(\w{1,80})': ")
_TOO_LARGE = 2**63
_DIGITS = 20


def _keywords(text: str) -> dict[str, Any]:
    """``name=value`` pairs at the top level of ``text``."""
    return _pairs(text[:_LONGEST], _PAIR)


def _pairs(text: str, name: re.Pattern[str]) -> dict[str, Any]:
    """The values behind each ``name``, of which none is looked for inside the value before it."""
    found: dict[str, Any] = {}
    at = 0
    while pair := name.search(text, at):
        value, end = _value_at(text, pair.end())
        if value is not _NOTHING:
            found.setdefault(pair[1], _hidden(value) if is_secret_name(pair[1]) else value)
        at = max(end, pair.end())
    return found


def _value_at(text: str, at: int) -> tuple[object, int]:
    """The value that begins at ``at`` and where it ends: a literal, else the bare words up to the next comma."""
    end = _end(text, at)
    bare = text[at:end].strip()
    value = _literal(bare)
    if value is not _NO_LITERAL:
        return value, end
    bare = re.split(r"\s(?:\.\.\.|…)", bare, maxsplit=1)[0]
    if not bare or "…" in bare or bare == "...":
        return _NOTHING, end
    if bare.isdecimal():
        return (_plain(int(bare)) if len(bare) <= _DIGITS else _NOTHING), end
    return bare, end


def _literal(text: str) -> object:
    """The value that ``text`` is a literal of, ``_NOTHING`` for one of no use, ``_NO_LITERAL`` for none."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a backslash in a path that is no escape
            return _plain(ast.literal_eval(text))
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return _NO_LITERAL


def _plain(value: object) -> object:
    """``value`` as JSON could hold it, without numbers that no setting has; ``_NOTHING`` for what is none."""
    if isinstance(value, dict):
        entries = ((str(name), _plain(each)) for name, each in value.items())
        return {name: _hidden(each) if is_secret_name(name) else each for name, each in entries if each is not _NOTHING}
    if isinstance(value, list | tuple | set):
        return [each for item in value if (each := _plain(item)) is not _NOTHING]
    if isinstance(value, bool | str | None):
        return value
    if isinstance(value, int):
        return value if abs(value) < _TOO_LARGE else _NOTHING
    return value if isinstance(value, float) and math.isfinite(value) else _NOTHING


def _hidden(value: object) -> object:
    """What stands for the value of a secret."""
    return value if value is None or isinstance(value, bool | int | float) else MASK


def _end(text: str, at: int) -> int:
    """The end of the value at ``at``: a comma or closing bracket outside of brackets and quotes."""
    depth, quote = 0, ""
    for place in range(at, len(text)):
        letter = text[place]
        if quote:
            if letter == quote and text[place - 1] != "\\":
                quote = ""
        elif letter in "'\"":
            quote = letter
        elif letter in "([{<":
            depth += 1
        elif letter in ")]}>":
            if depth == 0:
                return place
            depth -= 1
        elif letter == "," and depth == 0:
            return place
    return len(text)


def version_of(facts: Facts) -> tuple[Fact, str] | None:
    """The fact that names vLLM's version, and the version as printed."""
    for fact in facts.all("banner", "banner_server", "banner_logo", "engine_v1", "engine_v0"):
        version = fact.values.get("version")
        if version and version[0].isdigit():
            return fact, version
    return None
