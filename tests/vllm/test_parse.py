"""Command lines to EngineArgs."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvroom.errors import UsageError
from kvroom.vllm.args import EngineArgs
from kvroom.vllm.arguments import decides
from kvroom.vllm.parse import parse_serve_args, unknown_notes
from kvroom.vllm.releases import Release, parse_release


def parse(
    line: str, release: str = "0.28.0", env: Mapping[str, str] | None = None, file: str | None = None
) -> EngineArgs:
    reader = None if file is None else (lambda path: file)
    return parse_serve_args(shlex.split(line), env, release=parse_release(release), read_file=reader)


@pytest.mark.parametrize(
    ("line", "field", "value"),
    [
        ("m -tp 2", "tensor_parallel_size", 2),
        ("m -tp=2", "tensor_parallel_size", 2),
        ("m --tensor_parallel_size 2", "tensor_parallel_size", 2),
        ("m --tensor-parallel-size=2", "tensor_parallel_size", 2),
        ("m --tensor-parallel 2", "tensor_parallel_size", 2),
        ("m -tp 2 -tp 4", "tensor_parallel_size", 4),
        ("--enforce-eager m", "model", "m"),
        ("--model m", "model", "m"),
        ("--model=m -tp 2", "model", "m"),
        ("-tp 2 -- m", "model", "m"),
        ("m --max-model-len 32k", "max_model_len", 32000),
        ("m --max-model-len 32K", "max_model_len", 32768),
        ("m --max-model-len auto", "max_model_len", -1),
        ("m --max-model-len -1", "max_model_len", -1),
        ("m --kv-cache-memory-bytes 4G", "kv_cache_memory_bytes", 4 << 30),
        ("m --kv-cache-memory 4G", "kv_cache_memory_bytes", 4 << 30),
        ("m --enable-prefix-caching", "enable_prefix_caching", True),
        ("m --no-enable-prefix-caching", "enable_prefix_caching", False),
        (
            "m --kv-cache-dtype-skip-layers 0 sliding_window --port 1",
            "kv_cache_dtype_skip_layers",
            ("0", "sliding_window"),
        ),
        ("m --served-model-name a b", "served_model_name", "a"),
        ("m -q awq", "quantization", "awq"),
        ("m -qawq", "quantization", "awq"),
        ("m --quantization None", "quantization", None),
        ("m --convert embed", "runner", "pooling"),
        ("m --runner pooling", "runner", "pooling"),
        ("m --runner auto", "runner", None),
        ("m -O0", "compilation_mode", 0),
        ("m -O 3", "compilation_mode", 3),
        ("m -O=2", "compilation_mode", 3),
        ("m -cc.mode 3", "compilation_mode", 3),
        ("m -cc.mode=none", "compilation_mode", 0),
        ("m --compilation-config.cudagraph_mode=NONE", "cudagraph_mode", "NONE"),
        ("m -cc '{\"cudagraph_capture_sizes\": [1, 2]}'", "cudagraph_capture_sizes", (1, 2)),
        ("m --cudagraph-capture-sizes 1 2 4", "cudagraph_capture_sizes", (1, 2, 4)),
        ("m --max-cudagraph-capture-size 64", "max_cudagraph_capture_size", 64),
        ("m --attention-backend flashinfer", "attention_backend", "FLASHINFER"),
        ("m --attention-config.backend FLASH_ATTN", "attention_backend", "FLASH_ATTN"),
        ("m --attention-backend auto", "attention_backend", None),
        ("m --limit-mm-per-prompt '{\"image\": 2}'", "limit_mm_per_prompt", {"image": 2}),
        ("m --limit-mm-per-prompt.image 2", "limit_mm_per_prompt", {"image": 2}),
        ("m --hf-overrides '{\"rope_theta\": 1e6}'", "hf_overrides", {"rope_theta": 1e6}),
        ("m --cpu-offload-gb 2", "cpu_offload_gb", 2.0),
    ],
)
def test_fields(line: str, field: str, value: Any) -> None:
    args = parse(line)
    assert getattr(args, field) == value
    assert not args.unknown


def test_dotted_arguments_make_one_object() -> None:
    args = parse(
        "m --speculative-config.method mtp --speculative-config.num_speculative_tokens 2"
        " --speculative-config.a.b+ x,y --speculative-config.a.b+ z"
    )
    assert args.speculative_config == {
        "method": "mtp",
        "num_speculative_tokens": 2,
        "a": {"b": ["x", "y", "z"]},
    }


def test_short_speculation_flags() -> None:
    args = parse("m --spec-method ngram --spec-tokens 3", "0.31.0")
    assert args.speculative_config == {"method": "ngram", "num_speculative_tokens": 3}
    old = parse("m --speculative-model d --num-speculative-tokens 3", "0.6.6")
    assert old.speculative_config == {"model": "d", "num_speculative_tokens": 3}


@pytest.mark.parametrize(
    ("line", "release", "field", "value"),
    [
        ("m -O3", "0.8.5", "compilation_mode", 3),
        ("m -O.level=2", "0.10.2", "compilation_mode", 2),
        ("m -O.mode 3", "0.11.2", "compilation_mode", 3),
        ("m -O3", "0.11.2", "compilation_mode", 3),
        ("m --task embed", "0.10.0", "runner", "pooling"),
        ("m --rope-theta 10000 --rope-scaling '{\"rope_type\": \"yarn\"}'", "0.10.0", "hf_overrides",
         {"rope_scaling": {"rope_type": "yarn"}, "rope_theta": 10000.0}),
        ("m --limit-mm-per-prompt image=2,video=1", "0.6.6", "limit_mm_per_prompt", {"image": 2, "video": 1}),
        ("m --enable-chunked-prefill False", "0.6.6", "enable_chunked_prefill", False),
        ("m --swap-space 8", "0.17.1", "swap_space", 8.0),
        ("m --cuda-graph-sizes 1 2", "0.10.2", "cudagraph_capture_sizes", (1, 2)),
        ("m --cuda-graph-sizes 64", "0.10.2", "max_cudagraph_capture_size", 64),
        ("m --disable-prefix-caching", "0.33.0", "enable_prefix_caching", False),
        ("m --no-enable-prefix-caching", "0.33.0", "enable_prefix_caching", False),
        ("m -ep", "0.28.0", "enable_expert_parallel", True),
    ],
)  # fmt: skip
def test_fields_by_release(line: str, release: str, field: str, value: Any) -> None:
    args = parse(line, release)
    assert getattr(args, field) == value
    assert not args.unknown


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("m --gpu-memory-utilization 1.2", "--gpu-memory-utilization: '1.2' is not allowed"),
        ("m --gpu-memory-utilization 0", "above 0"),
        ("m --gpu-memory-utilization nan", "finite"),
        ("m -tp 0", "-tp: '0'"),
        ("m --max-num-seqs -4", "--max-num-seqs: '-4'"),
        ("m --max-model-len 0", "above 0"),
        ("m --max-num-batched-tokens 1.5K", "1.5k (thousands)"),
        ("m --max-model-len 32kb", "k m g t"),
        ("m --hf-overrides '{'", "valid JSON"),
        ("m --hf-overrides module.function", "JSON object"),
        ("m --speculative-config '[1]'", "JSON object"),
        ("m --speculative-config.num_speculative_tokens many", "whole number"),
        ("m --dtype double", "Allowed: auto, bfloat16"),
        ("m --port eighty", "--port"),
        ("m -tp", "-tp needs a value"),
        ("m --speculative-config.method", "needs a value"),
        ("m --enforce-eager=true", "takes no value"),
        ("m --port.x 1", "has no keys"),
        ("m --max-num 4", "could be"),
        ("m -O9", "-O: '9'"),
        ("m -O", "-O needs a level"),
        ("m -O.mode=3", "Write -cc.mode=3"),
        ("m -cc.mode 7", "0 to 3"),
        ("m -cc.cudagraph_capture_sizes '[0]'", "numbers above 0"),
        ("m n", "'n' belongs to no option"),
        ("--model m n", "'n' belongs to no option"),
        ("m --config a.yaml", "cannot be read here"),
    ],
)
def test_mistakes_are_named(line: str, says: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse(line)
    assert says in str(caught.value)


def test_auto_length_needs_a_release_that_has_it() -> None:
    with pytest.raises(UsageError):
        parse("m --max-model-len auto", "0.13.0")
    with pytest.raises(UsageError, match=r"0\.14"):
        parse("m --max-model-len -1", "0.13.0")


@pytest.mark.parametrize(
    ("line", "model", "unknown"),
    [
        ("m --foo bar", "m", ("--foo", "bar")),
        ("--foo bar m", "m", ("--foo", "bar")),
        ("--foo=bar m", "m", ("--foo=bar",)),
        ("--enforce-eagr m", "m", ("--enforce-eagr",)),
        ("--use-v2-block-manager m", "m", ("--use-v2-block-manager",)),
        ("--swap-space 4 m", "m", ("--swap-space", "4")),
        ("m --foo --bar", "m", ("--foo", "--bar")),
        ("m --foo.bar 1", "m", ("--foo.bar", "1")),
    ],
)
def test_unknown_options_are_kept_and_take_no_model(line: str, model: str, unknown: tuple[str, ...]) -> None:
    args = parse(line)
    assert (args.model, args.unknown) == (model, unknown)
    assert len(unknown_notes(args, Release(0, 28, 0))) == sum(word.startswith("-") for word in unknown)


def test_options_that_move_no_memory_are_passed_on_as_written() -> None:
    args = parse("m --port 8000 --reasoning-parser qwen3 --chat_template=x --middleware a -tp 2")
    assert args.passed == (
        "--port",
        "8000",
        "--reasoning-parser",
        "qwen3",
        "--chat_template=x",
        "--middleware",
        "a",
    )
    assert args.given == {"tensor_parallel_size": 2}
    assert not decides("port")
    assert decides("tensor_parallel_size")


@pytest.mark.parametrize(("release", "backend"), [("0.9.2", "FLASHINFER"), ("0.14.1", "FLASHINFER"), ("0.15.1", None)])
def test_the_backend_variable_until_its_end(release: str, backend: str | None) -> None:
    args = parse("m", release, {"VLLM_ATTENTION_BACKEND": "FLASHINFER_VLLM_V1", "HOME": "/root"})
    assert args.attention_backend == backend
    assert args.env == {"VLLM_ATTENTION_BACKEND": "FLASHINFER_VLLM_V1"}


def test_a_config_file_gives_way_to_the_command_line() -> None:
    text = """
model: from-file
tensor-parallel-size: 4
max_model_len: 8k
enforce-eager: true
enable-prefix-caching: false
cudagraph-capture-sizes: [1, 2]
compilation-config:
  cudagraph_mode: NONE
"""
    args = parse("m -tp 2 --config a.yaml", file=text)
    assert (args.model, args.tensor_parallel_size, args.max_model_len) == ("m", 2, 8000)
    assert (args.enforce_eager, args.enable_prefix_caching) == (True, False)
    assert (args.cudagraph_capture_sizes, args.cudagraph_mode) == ((1, 2), "NONE")
    assert parse("--config a.yaml", file=text).model == "from-file"


BOMB = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "\n".join(
    f"{chr(98 + n)}: &{chr(98 + n)} [{','.join(['*' + chr(97 + n)] * 9)}]" for n in range(12)
)


@pytest.mark.parametrize(
    "text",
    [
        "a: [",
        "- a",
        "just text",
        "a: !!python/object/apply:os.system [ls]",
        "1: 2",
        BOMB,
        "a: " + "[" * 2000,
        "x" * 1_000_001,
        "a: 2024-99-99",
    ],
)
def test_a_bad_config_file_is_one_clear_error(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse("m --config a.yaml", file=text)
    assert len(str(caught.value)) < 600


def test_an_empty_config_file_changes_nothing() -> None:
    assert parse("m --config a.yaml", file="") == parse("m")


def test_two_config_files_are_refused() -> None:
    with pytest.raises(UsageError, match="more than once"):
        parse("m --config a.yaml --config b.yaml", file="")


@given(st.lists(st.text(alphabet="-=.{}\"'abcmtp012K_ ", max_size=12), max_size=8))
def test_any_words_are_read_or_refused_clearly(words: list[str]) -> None:
    with contextlib.suppress(UsageError):
        args = parse_serve_args(words, release=Release(0, 28, 0))
        assert set(args.passed) | set(args.unknown) <= set(words)


@pytest.mark.parametrize("count", [101, 300_000])
def test_a_flood_of_unknown_options_is_refused(count: int) -> None:
    with pytest.raises(UsageError, match="none of vLLM"):
        parse_serve_args(["m", *(["--x", "1"] * count)], release=Release(0, 28, 0))


@pytest.mark.parametrize("words", [["m", "--api-key=", "sk-abcdef1234"], ["--api-key=", "sk-abcdef1234", "m"]])
def test_a_secret_that_stands_apart_from_its_flag_is_not_shown(words: list[str]) -> None:
    with pytest.raises(UsageError) as caught:
        parse_serve_args(words, {}, release=Release(0, 28, 0))
    assert "sk-abcdef1234" not in str(caught.value)
