from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.redaction.secrets import KEY_LINES, PLACED, PLAIN, SHAPED, WANDB_KEY

from kvroom.redaction import MASK, UNSEEN, Cleaner, clean, clean_command

PREFIXES = [
    "",
    "(APIServer pid=12) INFO 11-29 16:49:07 [api_utils.py:286] ",
    "2026-07-08T22:40:03.166684016Z vllm-1  | ",
    "\x1b[32m",
    "(EngineCore pid=1)\x1b[0m ",
    "x: '",
    '{"log": "',
    "text\\n",
    "\\u001b[32m",
    "\\x1b[0;36m",
    "> ",
    "é",
]

UNTOUCHED = """
INFO 11-29 16:49:07 [kv_cache_utils.py:1229] GPU KV cache size: 217,216 tokens
(EngineCore_DP0 pid=26283) INFO 11-06 10:51:48 [kv_cache_utils.py:1234] Maximum concurrency for 120,000 tokens: 2.48x
meta-llama/Llama-3.1-8B-Instruct Qwen/Qwen3-30B-A3B deepseek-ai/DeepSeek-V3 openai/gpt-oss-120b
Qwen/Qwen3-8B 3.21 GiB 108,589 tokens --max-model-len 32768
vLLM API server version 0.11.1rc2.dev141+g38db529f6
--hf-overrides '{"a": 1}' --hf-config-path x --tokenizer Qwen/Qwen3-8B --tokenizer-mode auto --max-num-batched-tokens 8
hf_token=None, hf_overrides={}, hf_config, hf_transfer, hf_transformers_config, hf_quant_config.json hf_text_config=x
output_model_llama2-7b-hf_quantization_bitsandbytes.txt
api_key=None, 'api_key': None, "hf_token": null, hf_token=True, token: str | None = None, 'api_key': [], api_key=''
tokenizer='m', tokenizer_mode=auto, tokenizer_revision=None, skip_tokenizer_init=False, max_num_batched_tokens=8192
"token_ids": null, "prompt_token_ids": [1, 2, 3], "prompt_tokens": 19, "max_tokens": 513, 'token_ids': [128009]
bos_token='<|begin_of_text|>', eos_token: </s>, 'pad_token': 'pad12345678', eos_token_id=151645, "token": " Hello"
time_per_output_token=0.0123 max_prompt_adapter_token=0 cudagraph_capture_sizes=[1, 2, 4]
Received request cmpl-abc-0: prompt: 'x', chatcmpl-0123456789abcdef0123456789abcdef
disk-cache task-1234567 risk-averse mask-0123456789 flask-login-0.6.3 scikit-learn sk-learn-contrib
KeyError: 'layers.0.self_attn.qkv_proj.weight' key=value cache_key=('a', 1) primary_key: 5 key: 0123456789ab
PWD=/srv/app OLDPWD=/srv api_key=args.api_key token=self.token api_key = os.environ["X"] hf_token=get_token()
HF_TOKEN=$HF_TOKEN --api-key ${VLLM_API_KEY} --hf-token <your-token>
usage: vllm serve [--api-key API_KEY] [--hf-token HF_TOKEN]
use --api-key to set the key, a bearer token is required, Bearer authentication, tokens: 12, secrets
https://docs.vllm.ai/en/latest/x?a=1#b http://0.0.0.0:8000 git@github.com:vllm-project/vllm.git
requests.exceptions.HTTPError: 401 Client Error: Unauthorized for url: https://huggingface.co/m/resolve/main/config.json
commit 0123456789abcdef0123456789abcdef01234567 sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08
glm-4.5-air glibc-2.35 global-step eyJ npm_config AIzawa xoxo- type=KEY max_cookie_size=5 cookies, tokens
name: VLLM_PORT value: 8000 {"name": "MODEL", "value": "Qwen/Qwen3-8B"}
int main() { std::vector<token> a; } Token::new() f"{token}" token=token, api_key == x
""".strip().split("\n")

ORDINARY = st.lists(st.sampled_from(UNTOUCHED), max_size=4).map("\n".join)
NOISE = st.text(st.characters(codec="utf-8") | st.sampled_from("'\"\\[]{}=:,;&?@/- \n\t\x1b"), max_size=80)


@pytest.mark.parametrize("prefix", PREFIXES)
@pytest.mark.parametrize("secret", SHAPED)
def test_tokens_are_masked_wherever_they_stand(secret: str, prefix: str) -> None:
    for text in (
        f"{prefix}{secret}",
        f"{prefix}{secret}', and text",
        f"{prefix}{secret}\x1b[0m",
        f"{prefix}x={secret},",
    ):
        assert secret[:12] not in clean(text)
        assert MASK in clean(text)


@pytest.mark.parametrize("prefix", PREFIXES)
@pytest.mark.parametrize("place", PLACED)
def test_values_of_secret_names_are_masked(place: str, prefix: str) -> None:
    text = prefix + place.format(PLAIN) + " and more"
    assert PLAIN not in clean(text)
    assert "s3cr3t" not in clean(text)
    assert clean(text).count("\n") == text.count("\n")


@pytest.mark.parametrize("line", UNTOUCHED)
def test_what_a_log_is_read_for_survives(line: str) -> None:
    assert clean(line) == line


@pytest.mark.parametrize(
    ("text", "cleaned"),
    [
        ("{'api_key': ['a1'], 'port': 80}", f"{{'api_key': ['{MASK}'], 'port': 80}}"),
        ('{"hf_token": "a1", "x": 1}', f'{{"hf_token": "{MASK}", "x": 1}}'),
        ("Config(hf_token='a1', x=1)", f"Config(hf_token='{MASK}', x=1)"),
        ("Config(hf_token=a1, x=1)", f"Config(hf_token={MASK}, x=1)"),
        ("?token=a1&b=2", f"?token={MASK}&b=2"),
        ("AccountKey=a==;EndpointSuffix=core", f"AccountKey={MASK};EndpointSuffix=core"),
        ("Authorization: Bearer a1, status 200", f"Authorization: Bearer {MASK}, status 200"),
        ("https://user:pass@example.org/x", f"https://{MASK}@example.org/x"),
        (
            "- name: HF_TOKEN\n  value: a1\n- name: PORT\n  value: 80",
            f"- name: HF_TOKEN\n  value: {MASK}\n- name: PORT\n  value: 80",
        ),
        ("\x1b[31mred\x1b[0m\x07 \r\nnext\r", "red\ufffd \nnext\ufffd"),
    ],
)
def test_what_stands_around_a_secret_stays(text: str, cleaned: str) -> None:
    assert clean(text) == cleaned


def test_a_wandb_key_is_masked_only_beside_the_name() -> None:
    assert WANDB_KEY not in clean(f"wandb: login with {WANDB_KEY}")
    assert clean(f"commit {WANDB_KEY}") == f"commit {WANDB_KEY}"


def test_a_private_key_is_masked_and_nothing_after_it() -> None:
    begin, end = "-----BEGIN RSA PRIVATE " + "KEY-----", "-----END RSA PRIVATE " + "KEY-----"
    block = "\n".join([begin, *KEY_LINES, end, "INFO next"])
    assert clean(block) == "\n".join([begin, MASK, MASK, MASK, end, "INFO next"])
    assert clean("\\n".join([begin, *KEY_LINES, end])) == begin + MASK + end
    prefixed = "\n".join(f"vllm-1  | {line}" for line in block.split("\n"))
    assert not any(line in clean(prefixed) for line in KEY_LINES)
    assert clean("\n".join([begin, *KEY_LINES, "INFO a", "INFO b"])).endswith("\nINFO a\nINFO b")


def test_control_codes_do_not_reach_the_terminal() -> None:
    assert not UNSEEN.search(clean("\x1b[31mred\x07\x1b]0;title\x07\x9b1m\x1b\x00\u202e"))


def test_a_stream_of_lines_is_cleaned_like_the_whole() -> None:
    lines = [line for place in PLACED for line in place.format(PLAIN).split("\n")]
    lines += ["-----BEGIN PRIVATE " + "KEY-----", *KEY_LINES, "-----END PRIVATE " + "KEY-----"]
    cleaner = Cleaner()
    assert "\n".join(map(cleaner, lines)) == clean("\n".join(lines))


@given(NOISE, NOISE, st.sampled_from(SHAPED))
def test_a_planted_token_never_survives(before: str, after: str, secret: str) -> None:
    assert secret not in clean(f"{before} {secret} {after}")


@given(ORDINARY, st.sampled_from(PLACED), ORDINARY)
def test_a_planted_value_never_survives_and_the_lines_around_it_do(before: str, place: str, after: str) -> None:
    text = clean("\n".join([before, place.format(PLAIN), after]))
    assert "s3cr3t" not in text
    assert text.startswith(before)
    assert text.endswith(after)


@example([SHAPED[11], "name: HF_TOKEN\n  v"])
@given(
    st.lists(
        NOISE | st.sampled_from([*PLACED, *SHAPED, *UNTOUCHED, "-----BEGIN PRIVATE KEY-----\n", "--api-key\n", MASK]),
        max_size=6,
    )
)
def test_cleaning_twice_is_cleaning_once_and_keeps_the_lines(parts: list[str]) -> None:
    text = "".join(parts)
    once = clean(text)
    assert clean(once) == once
    assert once.count("\n") == text.count("\n")


@pytest.mark.parametrize(
    "unit",
    [
        "a",
        "token=",
        "api_key='",
        'api_key=\\"',
        "hf_",
        "://a:b@",
        "a.",
        "--api-key ",
        "eyJaaaaaaaaaaaaa.",
        "cookie: ",
        "[{(",
        "wandb ",
    ],
)
def test_a_long_line_comes_back_at_most_a_little_longer(unit: str) -> None:
    text = unit * (200_000 // len(unit))
    assert len(clean(text)) <= 3 * len(text)


def test_values_of_secret_flags_are_masked_in_both_forms() -> None:
    assert clean_command(["m", "--api-key", "a b", "--hf_token=x", "--port", "80"]) == [
        "m",
        "--api-key",
        MASK,
        f"--hf_token={MASK}",
        "--port",
        "80",
    ]
