"""The main job on four real launches: ``make demo``. Everything comes from the packaged catalogue.

What this machine's logs taught is left aside. The four: a model that fits a 24 GB card; one that does not
at its native length; a hybrid whose verdict turns on the attention backend; one where max_num_seqs is the
setting to blame.
"""

from __future__ import annotations

import shlex
import sys

from kvroom.cli.main import run

HYBRID = (
    "plan Qwen/Qwen3.6-27B --assume-quantization w4a16 --gpu '2x RTX 5060 Ti 16GB' --measured total=15.93GiB"
    " --vllm 0.28.0 --tensor-parallel-size 2 --gpu-memory-utilization 0.90 --max-model-len 100352"
    " --max-num-seqs 32 --max-num-batched-tokens 3135 --mamba-cache-mode align --offline"
)
LOGGED = "--measured available=3.47GiB --measured-with '--attention-backend FLASH_ATTN'"
CASES = (
    (
        "Qwen3-8B at 32768 tokens on an RTX 4090",
        "plan Qwen/Qwen3-8B --max-model-len 32768 --gpu 'RTX 4090' --offline",
    ),
    (
        "Llama-3.1-8B at its native length on a 24 GB card",
        "plan meta-llama/Llama-3.1-8B-Instruct --gpu 'RTX 3090' --offline",
    ),
    (
        "A 27B INT4 hybrid on two 16 GB cards, of which a log with FLASH_ATTN is known",
        f"{HYBRID} --attention-backend FLASH_ATTN {LOGGED}",
    ),
    ("The same with FLASHINFER", f"{HYBRID} --attention-backend FLASHINFER {LOGGED}"),
    (
        "gpt-oss-120b on one H100",
        "plan openai/gpt-oss-120b --gpu H100 --vllm 0.11.0 --gpu-memory-utilization 0.95 --offline",
    ),
)


def main() -> int:
    """Print every case; the exit code is that of the first one that could not be planned."""
    for title, command in CASES:
        print(f"\n=== {title}\n$ kvroom {command}\n", flush=True)
        code = run([*shlex.split(command), "--no-learned"])
        if code:
            return code
    return 0


if __name__ == "__main__":
    sys.exit(main())
