"""The values of the vLLM production-stack chart (``servingEngineSpec.modelSpec``) to launches.

The flags are those that the chart writes: helm/templates/deployment-vllm-multi.yaml and ray-cluster.yaml of
vllm-project/production-stack at a6c01db.
"""

from __future__ import annotations

import re
from dataclasses import replace

from kvroom.errors import UsageError
from kvroom.launches.containers import ContainerRun
from kvroom.launches.launch import DEFAULT_SHARED_MEMORY, Found, Pod
from kvroom.launches.manifests.cards import cards_left, cards_of, gpus_of
from kvroom.launches.manifests.environment import is_open_secret, open_flags
from kvroom.launches.manifests.pods import token_lines, unanswered
from kvroom.launches.manifests.quantity import quantity
from kvroom.launches.manifests.tree import Tree
from kvroom.launches.read import launches_of
from kvroom.launches.variables import Word

_FLAGS = {
    "maxModelLen": "--max-model-len",
    "dtype": "--dtype",
    "tensorParallelSize": "--tensor-parallel-size",
    "pipelineParallelSize": "--pipeline-parallel-size",
    "maxNumSeqs": "--max-num-seqs",
    "gpuMemoryUtilization": "--gpu-memory-utilization",
    "maxLoras": "--max-loras",
    "runner": "--runner",
    "convert": "--convert",
}
_SHARED_MEMORY = "20Gi"
"""What the chart mounts at /dev/shm where ``tensorParallelSize`` is set and ``shmSize`` is not."""
_STARTUP = (15, 10, 60)
"""The chart's own startup probe: delay and period in seconds, and the failures it allows."""
_LIMITS = ("requestGPUMem", "requestGPUMemPercentage", "limitGPUMem", "limitGPUMemPercentage")
_GPU_KEY = re.compile(r"(?:nvidia|amd)\.com/gpu")


def is_values(root: Tree) -> bool:
    """Whether these are values of that chart."""
    return root.get("servingEngineSpec", "modelSpec").kind == "list"


def values_launches(root: Tree, source: str) -> list[Found]:
    """The launches of all models of the values that are not switched off."""
    spec = root.get("servingEngineSpec")
    if spec.get("enableEngine").text.lower() == "false":
        return []
    models = [each for each in spec.get("modelSpec").elements() if each.get("enabled").text.lower() != "false"]
    return [found for model in models if model.kind == "map" for found in _model(model, spec, source)]


def _model(model: Tree, spec: Tree, source: str) -> list[Found]:
    kind = f"model {model.get('name').shown}"
    image = Word(
        f"{model.get('repository').shown}:{model.get('tag').shown}"
        if model.get("tag")
        else model.get("repository").shown
    )
    env = {each.get("name").text: each.get("value").word for each in model.get("env").elements() if each.get("value")}
    run = ContainerRun(image, [Word("vllm"), Word("serve"), *_words(model)], None, env)
    try:
        (launch,) = launches_of(run, source, model.line)
    except UsageError as error:
        return [unanswered(source, model.line, kind, error)]
    lines = token_lines(launch.tokens, model)
    flags = open_flags(launch.tokens, lines, model.document.rows)
    ray = model.get("raySpec").get("enabled").true
    nodes = (model.get("replicaCount").whole or 1) + 1 if ray else 1
    gpus, gpu_line, part = _gpus(model)
    cards = (
        cards_of(model) if model.get("affinity") else cards_left(Tree(model.document), model.get("nodeSelectorTerms"))
    )
    shared = quantity(model.get("shmSize").text or _SHARED_MEMORY)
    seconds, probe_line = _startup(spec)
    here = Pod(
        kind,
        "vllm",
        image.text,
        True,
        gpus,
        nodes,
        shared if model.get("vllmConfig", "tensorParallelSize") else DEFAULT_SHARED_MEMORY,
        seconds,
        (*_secrets(model), *flags),
        part or cards.part,
        {
            "container": model.line,
            "image": model.get("tag").line or model.line,
            "gpus": gpu_line or model.line,
            "shared_memory": model.get("shmSize").line or model.line,
            "probe": probe_line or model.line,
            "HF_TOKEN": model.get("hf_token").line,
            **flags,
        },
    )
    return [
        replace(
            launch,
            line=lines[0],
            token_lines=lines,
            gpu_hint=gpus * nodes if gpus else None,
            notes=(*launch.notes, *cards.notes),
            cards=cards.names,
            pod=here,
        )
    ]


def _words(model: Tree) -> list[Word]:
    """The words that the chart writes behind ``vllm serve``."""
    config = model.get("vllmConfig")
    words = [model.get("modelURL").word]
    words += [Word("--enable-lora")] if model.get("enableLoRA").true else []
    chunked = config.get("enableChunkedPrefill")
    if chunked:
        words.append(Word("--enable-chunked-prefill" if chunked.true else "--no-enable-chunked-prefill"))
    if config:
        prefix = config.get("enablePrefixCaching").true
        words.append(Word("--enable-prefix-caching" if prefix else "--no-enable-prefix-caching"))
    for key, flag in _FLAGS.items():
        if config.get(key):
            words += [Word(flag), config.get(key).word]
    words += config.get("extraArgs").words()
    if model.get("modelRevision").text:
        words += [Word("--revision"), model.get("modelRevision").word]
    return words


def _gpus(model: Tree) -> tuple[int | None, int, str]:
    """What the chart asks for: ``resources`` where they are given, else ``requestGPU`` of ``requestGPUType``."""
    found = gpus_of(model.get("resources"))
    if found[0] is not None or model.get("resources", "limits"):
        return found
    place, kind = model.get("requestGPU"), model.get("requestGPUType").text or "nvidia.com/gpu"
    part = "" if _GPU_KEY.fullmatch(kind) else f"It asks for {kind[:60]}."
    if any(model.get(key) for key in _LIMITS):
        part = "It limits the GPU's memory (HAMi)."
    return place.whole, place.line, part


def _startup(spec: Tree) -> tuple[int, int]:
    probe = spec.get("startupProbe")
    keys = ("initialDelaySeconds", "periodSeconds", "failureThreshold")
    delay, period, times = (
        default if probe.get(key).whole is None else probe.get(key).whole or 0
        for key, default in zip(keys, _STARTUP, strict=True)
    )
    return delay + period * times, probe.line


def _secrets(model: Tree) -> tuple[str, ...]:
    token = model.get("hf_token")
    return ("HF_TOKEN",) if token.kind == "text" and is_open_secret(token.text) else ()
