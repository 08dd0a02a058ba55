"""Planted secrets, none of them real; each is put together here so that no scanner takes this file for a leak."""

from __future__ import annotations

_BODY = "aB3dE5gH7jK9mN1pQ2sT4vX6zA8cF0hJ2"
_HEX = "0123456789abcdef0123456789abcdef01234567"
_JWT = ".".join(["eyJ" + "hbGciOiJIUzI1NiJ9", "eyJ" + "zdWIiOiIxMjM0NTY3ODkwIn0", "dozjgNryP4J3jVmNHl0w5N"])

SHAPED = [
    "hf" + "_" + _BODY,
    "hf" + "_abcdefGHIJKL12345",
    "api" + "_org_" + _BODY,
    "sk" + "-" + _BODY,
    "sk" + "-proj-" + "abc123456789",
    "sk" + "-ant-api03-" + _BODY + "-x_Y",
    "gh" + "p_" + "0123456789abcdefABCDEF",
    "github" + "_pat_11ABC_" + _BODY,
    "gl" + "pat-" + _BODY[:20],
    "xox" + "b-123456789012-" + _BODY,
    "AK" + "IA" + "ABCDEFGHIJKLMNOP",
    "AS" + "IA" + "ABCDEFGHIJKLMNOP",
    "AI" + "za" + "SyA-bcdefGHIJKLmnopQRSTuvwxYZ0123456",
    "nv" + "api-" + _BODY + "_x-Y",
    _JWT,
]
"""Secrets that show by their shape, wherever they stand."""

PLAIN = "s3cr3t-Value.77"
"""A secret that shows only by where it stands."""

PLACED = [
    "'api_key': ['{}']",
    "'api_key': ['{}', 'another']",
    "'api_key': '{}'",
    '"hf_token": "{}"',
    "hf_token='{}'",
    "api_key={}, model='x'",
    "api_key=b'{}'",
    "non-default args: {{'model': 'm', 'api_key': '{}', 'port': 80}}",
    '{{\\"api_key\\": \\"{}\\"}}',
    "--api-key {}",
    "--api-key={}",
    "--api-key '{}'",
    '["--model", "m", "--api-key", "{}", "--port", "80"]',
    '["--api-key","{}"]',
    "--hf-t {}",
    "--ssl-keyfile-password {}",
    "HF_TOKEN={} vllm serve m",
    "docker run -e HF_TOKEN={} -e X=1",
    "export HUGGING_FACE_HUB_TOKEN='{}'",
    "VLLM_API_KEY: {}",
    "VLLM_API_KEY={}",
    "SOME_PASSWORD={}",
    "aws_secret_access_key = {}",
    "AWS_SECRET_ACCESS_KEY={}",
    "AWS_SESSION_TOKEN={}",
    "WANDB_API_KEY={}",
    "- name: HF_TOKEN\n  value: {}",
    "- name: HF_TOKEN\n\n  value: '{}'",
    '  - name: VLLM_API_KEY\n    value: "{}"\n',
    '{{"name": "HF_TOKEN", "value": "{}"}}',
    '"name": "HF_TOKEN",\n"value": "{}"',
    "- --api-key\n- {}\n- --port\n- '80'",
    "vllm serve m --api-key \\\n  {} --port 80",
    "Authorization: Bearer {}",
    "authorization: Basic {}",
    "'Authorization': 'Bearer {}'",
    "curl -H 'Authorization: Token {}'",
    "(b'authorization', b'Bearer {}')",
    "Proxy-Authorization: Custom realm {}",
    "X-Api-Key: {}",
    "(b'x-api-key', b'{}')",
    "Cookie: session={}; theme=dark",
    "set-cookie: id={}; Path=/",
    "cookies={{'session': '{}'}}",
    "https://user:{}@host.example/x",
    "postgres://user:p@ss{}@host.example/db",
    "https://user:a/{}@host.example/x",
    "https://b.s3.amazonaws.com/m?X-Amz-Credential=AB&X-Amz-Signature={}&x=1",
    "https://b.blob.core.windows.net/m?sv=1&sig={}&se=2",
    "GET /v1/models?token={} HTTP/1.1",
    "GET /v1/models?a=1&access_token={} HTTP/1.1",
    "GET /v1/models?api_key={}&b=2 HTTP/1.1",
    "GET /m?key={} HTTP/1.1",
    "Endpoint=sb://x/;SharedAccessKeyName=a;SharedAccessKey={}",
    "AccountName=a;AccountKey={};EndpointSuffix=core",
    "machine api.wandb.ai login user password {}",
    "password: {}",
    '"clientSecret": "{}"',
    "'api_key': '{}",
    "token='{}'",
    "Incorrect API key provided: {}.",
]
"""Where a secret of no known shape may stand."""

KEY_LINES = [_BODY + _BODY[:31], _BODY[::-1] + _BODY[:31], "Qz9"]
"""The inside of a private key."""

WANDB_KEY = _HEX
