"""Excerpts of ``/metrics`` as the releases print them, figures changed."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvroom.server.metrics import parse_metrics

V0 = """\
# HELP vllm:num_requests_running Number of requests currently running on GPU.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{model_name="m"} 3.0
vllm:num_requests_swapped{model_name="m"} 1.0
vllm:num_requests_waiting{model_name="m"} 2.0
vllm:gpu_cache_usage_perc{model_name="m"} 0.25
vllm:cpu_cache_usage_perc{model_name="m"} 0.75
vllm:gpu_prefix_cache_hit_rate{model_name="m"} -1.0
# TYPE vllm:num_preemptions_total counter
vllm:num_preemptions_total{model_name="m"} 7.0
vllm:cache_config_info{block_size="16",cache_dtype="auto",enable_prefix_caching="False",num_gpu_blocks="1000"} 1.0
"""
V1_EARLY = """\
vllm:num_requests_running{model_name="m"} 3.0
vllm:num_requests_waiting{model_name="m"} 2.0
vllm:gpu_cache_usage_perc{model_name="m"} 0.5
# TYPE vllm:gpu_prefix_cache_queries_total counter
vllm:gpu_prefix_cache_queries_total{model_name="m"} 100.0
vllm:gpu_prefix_cache_queries_created{model_name="m"} 1.7e+09
vllm:gpu_prefix_cache_hits_total{model_name="m"} 40.0
vllm:num_preemptions_total{model_name="m"} 0.0
"""
BOTH_NAMES = """\
vllm:num_requests_running{engine="0",model_name="m"} 3.0
vllm:num_requests_waiting{engine="0",model_name="m"} 2.0
vllm:gpu_cache_usage_perc{engine="0",model_name="m"} 0.5
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.5
vllm:gpu_prefix_cache_queries_total{engine="0",model_name="m"} 100.0
vllm:prefix_cache_queries_total{engine="0",model_name="m"} 100.0
vllm:gpu_prefix_cache_hits_total{engine="0",model_name="m"} 40.0
vllm:prefix_cache_hits_total{engine="0",model_name="m"} 40.0
"""
NEW = """\
vllm:num_requests_running{engine="0",model_name="m"} 3.0
vllm:num_requests_running{engine="1",model_name="m"} 1.0
vllm:num_requests_waiting{engine="0",model_name="m"} 2.0
vllm:num_requests_waiting{engine="1",model_name="m"} 0.0
vllm:num_requests_waiting_by_reason{engine="0",model_name="m",reason="capacity"} 2.0
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.3636363636363636
vllm:kv_cache_usage_perc{engine="1",model_name="m"} 0.1
vllm:external_prefix_cache_hits_total{engine="0",model_name="m"} 9.0
vllm:num_preemptions_total{engine="0",model_name="m"} 5.0
vllm:num_preemptions_total{engine="1",model_name="m"} 1.0
vllm:num_preemptions_created{engine="0",model_name="m"} 1.796e+09
vllm:cache_config_info{block_size="128",engine="0",kv_cache_size_tokens="1536",num_gpu_blocks="12"} 1.0
vllm:cache_config_info{block_size="128",engine="1",kv_cache_size_tokens="1408",num_gpu_blocks="11"} 1.0
"""


def test_v0() -> None:
    sample = parse_metrics(V0)

    assert (sample.running, sample.waiting, sample.kv_use, sample.preemptions) == (3, 3, 0.25, 7)
    assert (sample.prefix_hits, sample.prefix_hit_rate) == (None, None)
    assert sample.claim is not None
    assert (sample.claim.most_tokens, sample.claim.tokens, sample.claim.prefix_caching) == (16_000, None, False)


def test_the_first_v1() -> None:
    sample = parse_metrics(V1_EARLY)

    assert (sample.running, sample.kv_use, sample.prefix_queries, sample.prefix_hits) == (3, 0.5, 100, 40)
    assert sample.claim is None


def test_old_and_new_names_together_count_once() -> None:
    sample = parse_metrics(BOTH_NAMES)

    assert (sample.kv_use, sample.prefix_queries, sample.prefix_hits) == (0.5, 100, 40)


def test_several_engines_are_summed_and_the_fullest_counts() -> None:
    sample = parse_metrics(NEW)

    assert (sample.running, sample.waiting, sample.preemptions, sample.engines) == (4, 2, 6, 2)
    assert sample.kv_use == 0.3636363636363636
    assert sample.claim is not None
    assert (sample.claim.num_blocks, sample.claim.most_tokens) == (11, 1408)


def test_what_is_not_vllm_is_not_known() -> None:
    assert not parse_metrics("llamacpp:requests_processing 1\n").known


@pytest.mark.parametrize("value", ["NaN", "+Inf", "1e300"])
def test_a_figure_that_is_none_is_left_out(value: str) -> None:
    assert parse_metrics(f"vllm:num_requests_running {value}\n").running is None


@given(st.text() | st.text(alphabet='vllm:num_requests_running{}="\\,. 0123456789\n'))
def test_any_text_is_read_or_refused(text: str) -> None:
    with contextlib.suppress(ValueError):
        parse_metrics(f"vllm:num_requests_running{text}")
