"""What a text looks like that is no log of vLLM."""

from __future__ import annotations

from kvroom.logs.read import Log

_SIGNS = (
    ("SGLang", ("sglang", "mem_fraction_static")),
    ("llama.cpp or ollama", ("llama_model_load", "ggml_", "llm_load_", "ollama")),
    ("Text Generation Inference", ("text_generation_launcher", "text-generation")),
    ("TensorRT-LLM", ("tensorrt_llm", "trtllm")),
    ("a web server", ('"get / http', "nginx", "gunicorn")),
    ("a web page", ("<!doctype html", "<html")),
    ("a configuration file", ("apiversion:", '"architectures":', "services:")),
    ("a Python traceback without vLLM's own lines", ("traceback (most recent call last)",)),
)


def what_else(log: Log) -> str:
    """``: it looks like ...``, empty where nothing tells."""
    if log.size == 0:
        return ": it is empty"
    sample = (log.sample or "").lower()
    for name, signs in _SIGNS:
        if any(sign in sample for sign in signs):
            return f": it looks like {name}"
    return ""
