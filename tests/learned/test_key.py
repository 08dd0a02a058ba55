"""What makes two launches one configuration, and what of a command is kept."""

from __future__ import annotations

from dataclasses import replace

from tests.learned.makers import LLAMA, prediction

from kvroom.learned.key import changes, fingerprint, kept_env, kept_words, logged_args
from kvroom.vllm.parse import parse_serve_args
from kvroom.vllm.releases import Release

RELEASE = Release(0, 28, 0)


def test_a_fine_tune_has_its_bases_fingerprint_and_another_size_or_storage_has_not() -> None:
    shape = prediction().setup.shape
    assert fingerprint(shape) == fingerprint(replace(shape, name="me/tuned", position_limits=(), source="a folder"))
    stored = prediction(assume_quantization="awq").setup.shape
    prints = {fingerprint(shape), fingerprint(stored), fingerprint(shape, draft=shape)}
    prints |= {fingerprint(replace(shape, **{name: 7})) for name in ("layers", "vocab_size", "kv_heads")}
    assert len(prints) == 6


def test_words_that_name_files_people_and_places_are_not_kept() -> None:
    words = [
        *("/srv/secret/llama", "--served-model-name", "boss", "--api-key", "sk-123456", "--host", "10.0.0.7"),
        *("--download-dir", "/home/alice", "--load-format", "auto", "--max-num-seqs", "64", "--enforce-eager"),
        *("--kv-transfer-config", '{"kv_connector": "LMCacheConnectorV1", "kv_ip": "/tmp/x", "host": "10.1.2.3"}'),
        *("--speculative-config", '{"model": "/srv/secret/draft", "num_speculative_tokens": 3}'),
        *("--compilation-config", '{"cudagraph_mode": "NONE", "cache_dir": "/home/alice/cache"}'),
    ]
    kept = " ".join(kept_words(parse_serve_args(words, release=RELEASE), None, RELEASE))
    for private in ("secret", "boss", "sk-", "10.", "alice", "/"):
        assert private not in kept
    for wanted in ("--max-num-seqs 64", "--enforce-eager", "num_speculative_tokens", "cudagraph_mode", "LMCache"):
        assert wanted in kept


def test_only_variables_that_move_memory_are_kept() -> None:
    env = {"VLLM_USE_V1": "1", "VLLM_API_KEY": "sk-1", "HF_TOKEN": "hf_x", "VLLM_ATTENTION_BACKEND": "/a b"}
    assert kept_env(env) == {"VLLM_USE_V1": "1"}


def test_a_default_that_is_left_out_equals_the_same_value_written() -> None:
    short = prediction()
    assert short.settings is not None
    words = kept_words(short.setup.args, short.settings, short.setup.release)
    then = logged_args(words, {}, short.setup.args, short.setup.release)
    assert then is not None
    assert changes(then, short.setup.args, short.settings) == ()
    other = prediction(LLAMA, "--max-num-seqs", "8", "--kv-cache-dtype", "fp8")
    assert other.settings is not None
    assert set(changes(then, other.setup.args, other.settings)) == {"max_num_seqs", "kv_cache_dtype"}


def test_words_that_a_release_does_not_read_are_none() -> None:
    now = prediction().setup.args
    assert logged_args(("--max-num-seqs", "many"), {}, now, RELEASE) is None
    assert logged_args(("--tensor-parallel-size", "0"), {}, now, RELEASE) is None


def test_variables_that_differ_are_changes() -> None:
    now = prediction()
    assert now.settings is not None
    words = kept_words(now.setup.args, now.settings, now.setup.release)
    then = logged_args(words, {"VLLM_USE_FLASHINFER_SAMPLER": "1"}, now.setup.args, now.setup.release)
    assert then is not None
    assert changes(then, now.setup.args, now.settings) == ("env VLLM_USE_FLASHINFER_SAMPLER",)
