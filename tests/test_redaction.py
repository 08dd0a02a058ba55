from __future__ import annotations

import pytest

from kvroom.redaction import MASK, clean, clean_command


@pytest.mark.parametrize(
    "secret",
    ["hf_abcdefGHIJKL12345", "sk-proj-abc123456789", "ghp_0123456789abcdefABCDEF", "AKIAABCDEFGHIJKLMNOP"],
)
def test_tokens_are_masked_wherever_they_stand(secret: str) -> None:
    assert secret not in clean(f"key {secret}, and text")
    assert MASK in clean(f"x={secret}")


def test_credentials_in_urls_and_bearer_headers_are_masked() -> None:
    assert clean("https://user:pass@example.org/x") == f"https://{MASK}@example.org/x"
    assert "abcdef123456" not in clean("Authorization: Bearer abcdef123456")


def test_numbers_and_model_names_survive() -> None:
    text = "Qwen/Qwen3-8B 3.21 GiB 108,589 tokens --max-model-len 32768 deepseek-ai/DeepSeek-V3"
    assert clean(text) == text


def test_control_codes_do_not_reach_the_terminal() -> None:
    assert "\x1b" not in clean("\x1b[31mred\x07")


def test_values_of_secret_flags_are_masked_in_both_forms() -> None:
    assert clean_command(["m", "--api-key", "a b", "--hf_token=x", "--port", "80"]) == [
        "m",
        "--api-key",
        MASK,
        f"--hf_token={MASK}",
        "--port",
        "80",
    ]
