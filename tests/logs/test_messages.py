"""The catalogue of messages: every wording can be found, and no line takes long."""

from __future__ import annotations

import re

import pytest

from kvroom.logs.messages import Message, anchor_of, catalogue

MESSAGES = catalogue().messages
ROLES = {"", "reached", "passed", "error", "symptom", "noise", "part"}


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: message.id)
def test_every_message_has_an_anchor_that_its_wording_holds(message: Message) -> None:
    assert message.role in ROLES
    for pattern in message.patterns:
        assert all(word in pattern.template for word in re.findall(r"[A-Za-z_]+", pattern.anchor) if len(word) > 5)


def test_ids_are_told_once() -> None:
    assert len({message.id for message in MESSAGES}) == len(MESSAGES)


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: message.id)
def test_no_repetition_is_unbounded(message: Message) -> None:
    """A pattern of bounded repetitions over a line of bounded length does a bounded amount of work."""
    for pattern in message.patterns:
        source = re.sub(r"\\.|\[[^\]]*\]", "x", pattern.regex().pattern)
        assert "*" not in source, source
        assert not re.search(r"(?<!\\)\+", source), source


@pytest.mark.parametrize(
    ("template", "anchor"),
    [
        ("Model loading took {gib:num} GiB", "odel loading took"),
        ("{a:int} is too long for {b:int}", "is too long for"),
        ("OOM", "OOM"),
        ("<CUDA|HIP> out of memory", "out of memory"),
    ],
)
def test_the_anchor_is_the_longest_literal(template: str, anchor: str) -> None:
    assert anchor_of(template) == anchor


def test_a_template_without_a_literal_is_refused() -> None:
    with pytest.raises(ValueError, match="no literal"):
        anchor_of("{a:int} <b|c>")


@pytest.mark.parametrize(
    ("text", "name", "values"),
    [
        ("Model loading took 14.2487 GB and 32.737843 seconds", "weights", {"gib": "14.2487"}),
        ("Loading model weights took 8.4920 GB", "weights", {"gib": "8.4920"}),
        ("GPU KV cache size: 1,048,576 tokens", "tokens", {"tokens": "1,048,576"}),
        ("CPU KV cache size: 512 tokens", "tokens", {"tokens": "512"}),
        (
            "To serve at least one request with the models's max seq len (262144), (36.0 GiB KV cache is needed, which"
            " is larger than the available KV cache memory (6.94 GiB). Based on the available memory, the estimated",
            "err_bytes",
            {"max_model_len": "262144", "needed": "36.0", "available": "6.94"},
        ),
        (
            "with the model's max seq len (180000), 3.05 GiB KV cache is needed, which is larger than the available KV"
            " cache memory (2.17 GiB)",
            "err_bytes",
            {"max_model_len": "180000", "needed": "3.05", "available": "2.17"},
        ),
        (
            "The model's max seq len (131072) is larger than the maximum number of tokens that can be stored in KV"
            " cache (81536).",
            "err_tokens",
            {"max_model_len": "131072", "tokens": "81536"},
        ),
        (
            "Free memory on device cuda:0 (19.77/22.05 GiB) on startup is less than desired GPU memory utilization"
            " (0.9, 19.84 GiB).",
            "err_free",
            {"device": "cuda:0", "free": "19.77", "total": "22.05", "util": "0.9", "requested": "19.84"},
        ),
        (
            "CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total capacty of 14.58 GiB of which 8.81 MiB"
            " is free.",
            "oom",
            {"wanted": "20.00 MiB", "gpu": "0", "total": "14.58 GiB", "free": "8.81 MiB"},
        ),
        ("# GPU blocks: 4025, # CPU blocks: 46", "blocks_v0", {"device": "GPU", "blocks": "4025", "cpu_blocks": "46"}),
        ("vLLM API server version 0.8.5.post1", "banner", {"version": "0.8.5.post1"}),
        (
            "Using FLASH_ATTN attention backend out of potential backends: ['FLASH_ATTN', 'FLASHINFER'].",
            "backend",
            {"backend": "FLASH_ATTN", "candidates": "['FLASH_ATTN', 'FLASHINFER']"},
        ),
        ("Using Flash Attention backend on V1 engine.", "backend", {"backend": "Flash Attention"}),
        ("GPU blocks: 19, # CPU blocks: 20", "blocks_v0", {"device": "GPU", "blocks": "19", "cpu_blocks": "20"}),
        (
            "Tried to allocate 2.50 GiB (NPU 0; 60.96 GiB total capacity; 57.40 GiB already allocated; 57.40 GiB"
            " current active; 1.90 GiB free; 57.60 GiB reserved in total by PyTorch)",
            "oom_old",
            {
                "wanted": "2.50 GiB",
                "gpu": "0",
                "total": "60.96 GiB",
                "allocated": "57.40 GiB",
                "active": "57.40 GiB",
                "free": "1.90 GiB",
                "reserved": "57.60 GiB",
            },
        ),
        (
            "and increase --gpu-memory-utilization from 0.7000 to 0.7021 to maintain",
            "graph_restore",
            {"util": "0.7000", "suggested": "0.7021"},
        ),
        (", in CacheEngine._allocate(self, blocks)", "frame", {"owner": "CacheEngine", "function": "_allocate"}),
        ("RuntimeError: CUDA driver error: out of memory", "oom_driver", {}),
        ("RuntimeError: HIP error: out of memory", "oom_driver", {}),
        ("CUDA Error: out of memory at /csrc/cumem_allocator.cpp:62", "oom_driver", {}),
        ("[0] NCCL WARN Cuda failure 2 'out of memory'", "oom_driver", {}),
        ("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`", "oom_driver", {}),
        ("level_zero backend failed with error: 39 (UR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY)", "oom_driver", {}),
    ],
)  # fmt: skip
def test_values_are_taken_as_printed(text: str, name: str, values: dict[str, str]) -> None:
    assert catalogue().by_id[name].find(text) == values


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: message.id)
def test_lines_made_of_a_message_a_thousand_times_are_got_through(message: Message) -> None:
    """Whatever a line repeats, the search ends; a pattern that backtracks without bound would never."""
    for pattern in message.patterns:
        plain = re.sub(r"\{\w+:(\w+)\}", lambda kind: "1" if kind[1] != "text" else "x ", pattern.template)
        plain = re.sub(r"<([^<>|]*)[^<>]*>\??", r"\1", plain)
        for piece in (plain, plain[: len(plain) // 2], "1" * 50, "1,111" * 10, pattern.anchor or plain):
            message.find(piece * (20_000 // max(len(piece), 1)))


def test_a_whole_message_is_the_line_and_nothing_else() -> None:
    bare = catalogue().by_id["bare"]

    assert bare.find("  AssertionError ") == {}
    assert bare.find("except AssertionError as error") is None
