"""A server that starts as vLLM does and answers as little as a trial asks, in a tenth of a second.

``write_fake`` puts it where ``python -m vllm.entrypoints.openai.api_server`` finds it. FAKE_* variables make it fail.
"""

from __future__ import annotations

from pathlib import Path

SERVER = """
import argparse, json, os, signal, socket, subprocess, sys, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

parser = argparse.ArgumentParser()
for name in ("model", "host"):
    parser.add_argument("--" + name)
for name in ("port", "max-model-len", "max-num-seqs", "max-num-batched-tokens", "kv-cache-memory-bytes"):
    parser.add_argument("--" + name, type=int)
args, _ = parser.parse_known_args()
length = args.max_model_len or 4096
if os.environ.get("FAKE_LOG_PID"):
    with open(os.environ["FAKE_LOG_PID"], "a") as file:
        file.write(f"{os.getpid()} {length}\\n")
print("INFO 01-02 03:04:05 [api_server.py:1] vLLM API server version 0.32.0", flush=True)
if os.environ.get("FAKE_CHILD"):
    subprocess.Popen([sys.executable, "-c", "import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(600)"])
if os.environ.get("FAKE_STUBBORN"):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
time.sleep(float(os.environ.get("FAKE_SLOW", "0")))
if os.environ.get("FAKE_PORT_TAKEN") and not os.path.exists(os.environ["FAKE_PORT_TAKEN"]):
    open(os.environ["FAKE_PORT_TAKEN"], "w").close()
    print("OSError: [Errno 98] Address already in use", file=sys.stderr, flush=True)
    sys.exit(1)
pool = (args.kv_cache_memory_bytes or 64 << 20) // 1024
if length > pool:
    print("INFO 01-02 03:04:06 [core.py:1] Initializing a V1 LLM engine (v0.32.0)", flush=True)
    print(
        f"ERROR 01-02 03:04:06 [core.py:2] ValueError: To serve at least one request with the model's max seq len"
        f" ({length}), (0.0 GiB KV cache is needed, which is larger than the available KV cache memory (0.0 GiB)."
        f" Based on the available memory, the estimated maximum model length is {pool - 128}. Try increasing"
        " `gpu_memory_utilization` or decreasing `max_model_len` when initializing the engine.",
        flush=True,
    )
    sys.exit(1)
print(f"INFO 01-02 03:04:07 [kv_cache_utils.py:1] CPU KV cache size: {pool:,} tokens", flush=True)


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, *_):
        pass


server = ThreadingHTTPServer(("127.0.0.1", args.port), Handler)
print("INFO:     Application startup complete.", flush=True)
server.serve_forever()
"""


def write_fake(folder: Path) -> Path:
    """The folder to put on PYTHONPATH, with the fake in it."""
    package = folder / "fake" / "vllm" / "entrypoints" / "openai"
    package.mkdir(parents=True)
    for each in (package, package.parent, package.parent.parent):
        (each / "__init__.py").touch()
    (package / "api_server.py").write_text(SERVER, "utf-8")
    return folder / "fake"
