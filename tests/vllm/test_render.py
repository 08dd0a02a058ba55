"""Command lines written again."""

from __future__ import annotations

import shlex
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvroom.errors import UsageError
from kvroom.vllm.parse import parse_serve_args
from kvroom.vllm.releases import Release
from kvroom.vllm.render import render_args, render_command

NEW = Release(0, 28, 0)


@pytest.mark.parametrize(
    ("line", "changes", "unset", "after"),
    [
        ("m -tp 2 --port 1", {"tensor_parallel_size": 4}, (), "m --tensor-parallel-size 4 --port 1"),
        ("m -tp 2", {"max_model_len": 4096}, (), "m -tp 2 --max-model-len 4096"),
        ("m --kv-cache-memory-bytes 4G -tp 2", {}, ("kv_cache_memory_bytes",), "m -tp 2"),
        (
            "m --max-model-len=9 -tp 2 --max-model-len 8",
            {"max_model_len": 7},
            (),
            "m -tp 2 --max-model-len 7",
        ),
        ("m --enable-prefix-caching", {"enable_prefix_caching": False}, (), "m --no-enable-prefix-caching"),
        ("m --no-enforce-eager", {"enforce_eager": True}, (), "m --enforce-eager"),
        ("m", {"cudagraph_capture_sizes": (1, 2)}, (), "m --cudagraph-capture-sizes 1 2"),
        ("m", {"speculative_config": {"method": "mtp"}}, (), 'm --speculative-config \'{"method": "mtp"}\''),
        ("m -cc.mode 3 --foo 1", {}, ("compilation_config",), "m --foo 1"),
        ("m", {"max_model_len": -1}, (), "m --max-model-len -1"),
        ("--cudagraph-capture-sizes 1 2 --port 3 m", {"port": None}, (), "m --cudagraph-capture-sizes 1 2"),
        ("-tp 2 -- m", {"max_num_seqs": 4}, (), "-tp 2 --max-num-seqs 4 -- m"),
    ],
)
def test_changes(line: str, changes: dict[str, Any], unset: tuple[str, ...], after: str) -> None:
    words = render_command(shlex.split(line), release=NEW, set_flags=changes, unset=unset)
    assert words == shlex.split(after)


def test_no_change_is_no_change() -> None:
    words = shlex.split("m --foo bar -tp=2 --speculative-config.method mtp -O3 --chat_template 'a b'")
    assert render_command(words, release=NEW) == words


def test_an_argument_that_the_release_lacks_is_refused() -> None:
    with pytest.raises(UsageError, match="no --swap-space"):
        render_command(["m"], release=NEW, set_flags={"swap_space": 4})


FLAGS = st.fixed_dictionaries(
    {},
    optional={
        "tensor_parallel_size": st.integers(1, 64),
        "max_model_len": st.one_of(st.just(-1), st.integers(1, 10**7)),
        "gpu_memory_utilization": st.floats(0.01, 1.0),
        "kv_cache_memory_bytes": st.integers(1, 1 << 45),
        "max_num_seqs": st.integers(1, 4096),
        "enable_prefix_caching": st.booleans(),
        "enforce_eager": st.booleans(),
        "kv_cache_dtype": st.sampled_from(["auto", "fp8", "fp8_e5m2"]),
        "cudagraph_capture_sizes": st.lists(st.integers(1, 512), min_size=1, max_size=4).map(tuple),
        "kv_cache_dtype_skip_layers": st.lists(st.sampled_from(["0", "1", "sliding_window"]), min_size=1).map(tuple),
        "speculative_config": st.fixed_dictionaries(
            {"method": st.sampled_from(["mtp", "ngram"]), "num_speculative_tokens": st.integers(0, 9)}
        ),
        "hf_overrides": st.dictionaries(st.text(max_size=5), st.integers(), max_size=3),
        "port": st.integers(1, 65535),
        "served_model_name": st.lists(st.text(alphabet="abc-", min_size=1, max_size=4), min_size=1).map(tuple),
    },
)


@given(
    FLAGS,
    st.text(alphabet="abc/-.", min_size=1, max_size=10),
    st.sampled_from([Release(0, 28, 0), Release(0, 33, 0)]),
)
def test_parse_undoes_render(flags: dict[str, Any], model: str, release: Release) -> None:
    names = flags.get("served_model_name")
    if model.startswith("-") or (names and any(name.startswith("-") for name in names)):
        return
    words = render_command([model], release=release, set_flags=flags)
    args = parse_serve_args(words, release=release)
    assert args.model == model
    port = flags.pop("port", None)
    assert args.given == flags
    assert args.passed == (() if port is None else ("--port", str(port)))
    assert parse_serve_args(render_args(args, release), release=release) == args


@given(FLAGS, FLAGS)
def test_the_last_change_wins_and_unset_undoes_it(first: dict[str, Any], second: dict[str, Any]) -> None:
    for flags in (first, second):
        names = flags.get("served_model_name")
        if names and any(name.startswith("-") for name in names):
            return
    words = render_command(["m"], release=NEW, set_flags=first)
    words = render_command(words, release=NEW, set_flags=second)
    args = parse_serve_args(words, release=NEW)
    assert args.given == {k: v for k, v in {**first, **second}.items() if k != "port"}
    assert render_command(words, release=NEW, unset={*first, *second}) == ["m"]
