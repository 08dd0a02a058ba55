"""KServe's InferenceService and LLMInferenceService to launches."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import replace

from kvroom.errors import UsageError
from kvroom.launches.containers import ContainerRun
from kvroom.launches.launch import Found, Launch, Unanswered
from kvroom.launches.manifests.environment import Environment, put_in, read_environment
from kvroom.launches.manifests.pods import Around, container_launches, placed, pod_launches, unanswered, unsuited
from kvroom.launches.manifests.tree import Tree
from kvroom.launches.read import launches_of
from kvroom.launches.variables import Word

MOUNT = "/mnt/models"
"""Where KServe mounts the model that a storage address names (pkg/constants: DefaultModelLocalMountPath)."""
_HUB = re.compile(r"hf://(?P<model>[^/:]+/[^/:@]+)(?:[:@](?P<revision>[^/]+))?/?$")
_ARGUMENTS = "VLLM_ADDITIONAL_ARGS"
_PARALLEL = {
    "tensor": "--tensor-parallel-size",
    "pipeline": "--pipeline-parallel-size",
    "data": "--data-parallel-size",
}
_OWN_FLAGS = ("--model_id", "--model-id", "--model_name", "--model-name", "--model_dir", "--model-dir", "--backend")
"""Options of KServe's huggingfaceserver; the others that it takes are vLLM's."""


def model_words(address: Tree) -> list[str]:
    """The model that a storage address names: a hub id with its revision, else the address itself.

    >>> _HUB.match("hf://Qwen/Qwen3-8B:main").groupdict()
    {'model': 'Qwen/Qwen3-8B', 'revision': 'main'}
    """
    match = _HUB.match(address.text.strip())
    if match is None:
        return [address.word.text]
    return [match["model"], *(["--revision", match["revision"]] if match["revision"] else [])]


def inference_service(root: Tree, around: Around, shared: Mapping[str, Mapping[str, Tree]]) -> list[Found]:
    """The launch of an InferenceService: its own container, or a model that the vLLM or huggingface runtime serves."""
    predictor = root.get("spec", "predictor")
    found = pod_launches(predictor, around)
    model = predictor.get("model")
    if not model:
        return found
    name, form = model.get("runtime").text, model.get("modelFormat", "name").text.lower()
    runtime = shared.get("ServingRuntime", {}).get(name) or shared.get("ClusterServingRuntime", {}).get(name)
    if form not in {"vllm", "huggingface"} and "vllm" not in name.lower() and runtime is None:
        return found
    workers = predictor.get("workerSpec")
    if workers:
        pipeline = workers.get("pipelineParallelSize").whole or 2
        around = replace(around, nodes=max(1, pipeline))
    return [*found, *_model_launch(model, predictor, workers, runtime, around)]


def _model_launch(model: Tree, predictor: Tree, workers: Tree, runtime: Tree | None, around: Around) -> list[Found]:
    try:
        env = read_environment(model, around.configs, around.given)
        own = [put_in(word, env) for word in model.get("args").words()]
        if any(word.text in {"--backend=huggingface", "huggingface"} for word in own):
            return []
        launches = _from_runtime(model, own, runtime, env, around) if runtime is not None else []
        if not launches:
            launches = launches_of(_as_server(model, own, workers, env), around.source, model.line)
    except UsageError as error:
        return [unanswered(around.source, model.line, around.kind, error)]
    address = model.get("storageUri") or model.get("storage", "storageUri")
    launches = [replace(each, tokens=with_mounted(each.tokens, address)) for each in launches]
    return [_on_template(launch, model, predictor, around, env) for launch in launches]


def _from_runtime(model: Tree, own: list[Word], runtime: Tree, env: Environment, around: Around) -> list[Launch]:
    """The launch of the runtime's container with the model's own arguments behind its own."""
    for container in runtime.get("spec", "containers").elements():
        base = read_environment(container, around.configs, around.given)
        values = {**base.values, **env.values}
        command = container.get("command").words()
        words = [*command[1:], *container.get("args").words(), *own]
        image = model.get("image") or container.get("image")
        found = launches_of(ContainerRun(image.word, words, command[0] if command else None, values), around.source)
        if found:
            return found
    return []


def _as_server(model: Tree, own: list[Word], workers: Tree, env: Environment) -> ContainerRun:
    """A container whose arguments are the server's: those of the runtime of the huggingface or vLLM format."""
    named = _value_of(own, ("--model_id", "--model-id"))
    words = [Word(named or MOUNT), *_without(own, _OWN_FLAGS)]
    for key, flag in (
        ("tensorParallelSize", "--tensor-parallel-size"),
        ("pipelineParallelSize", "--pipeline-parallel-size"),
    ):
        if workers.get(key):
            words += [Word(flag), workers.get(key).word]
    return ContainerRun(model.get("image").word, [Word("vllm"), Word("serve"), *words], None, dict(env.values))


def with_mounted(tokens: tuple[str, ...], address: Tree) -> tuple[str, ...]:
    """``tokens`` with what is mounted at ``MOUNT`` named by its address, where that is a model of the hub."""
    if not address or _HUB.match(address.text.strip()) is None:
        return tokens
    words: list[str] = []
    revision: list[str] = []
    for token in tokens:
        option, equals, value = token.partition("=")
        if token == MOUNT or (equals and value == MOUNT):
            name, *revision = model_words(address)
            words.append(f"{option}={name}" if equals else name)
        else:
            words.append(token)
    return (*words, *revision)


def llm_inference_service(root: Tree, around: Around) -> list[Found]:
    """The launches of an LLMInferenceService: decode, and prefill where that is apart."""
    spec = root.get("spec")
    found: list[Found] = []
    for place, name in ((spec, around.kind), (spec.get("prefill"), f"{around.kind}, prefill")):
        if place.get("template") or (place is spec and place.get("model")):
            found += _llm_launch(place, spec, replace(around, kind=name))
    return found


def _llm_launch(place: Tree, spec: Tree, around: Around) -> list[Found]:
    """The launch of one workload, by its own command or that of KServe's templates.

    Those are ``vllm serve`` with the parallel sizes, ``VLLM_ADDITIONAL_ARGS`` and the container's arguments.
    """
    parallel = place.get("parallelism")
    pod = place.get("template")
    container = next(pod.get("containers").elements(), Tree(place.document))
    if place.get("worker"):
        local = parallel.get("dataLocal").whole or 1
        around = replace(
            around, nodes=max(2, (parallel.get("data").whole or 1) // local, parallel.get("pipeline").whole or 1)
        )
    address = spec.get("model", "uri")
    if container.get("command"):
        found = container_launches(container, pod, around)
        return [
            replace(each, tokens=with_mounted(each.tokens, address)) if isinstance(each, Launch) else each
            for each in found
        ]
    at = container if container else place
    try:
        env = read_environment(container, around.configs, around.given)
        words = [Word(word) for word in model_words(address)]
        for key, flag in _PARALLEL.items():
            if parallel.get(key):
                words += [Word(flag), parallel.get(key).word]
        words += [Word("--enable-expert-parallel")] if parallel.get("expert").true else []
        added = env.values.get(_ARGUMENTS)
        split = shlex.split(added.text) if added else []
        words += [Word(each, added.unknown if added and "{{" in each else ()) for each in split]
        words += [put_in(word, env) for word in container.get("args").words()]
        run = ContainerRun(container.get("image").word, [Word("vllm"), Word("serve"), *words], None, dict(env.values))
        launches = launches_of(run, around.source, at.line)
    except (UsageError, ValueError) as error:
        return [unanswered(around.source, at.line, around.kind, error)]
    why = unsuited(container)
    if why:
        return [Unanswered(around.source, at.line, around.kind, why)]
    return [_on_template(launch, at, pod, around, env) for launch in launches]


def _on_template(launch: Launch, container: Tree, pod: Tree, around: Around, env: Environment) -> Launch:
    """``launch`` in a pod that KServe completes: its templates mount /dev/shm and have a startup probe."""
    launch = placed(launch, container, pod, around, env)
    if launch.pod is None:
        return launch
    shared = launch.pod.shared_memory if launch.pod.lines["shared_memory"] != container.line else None
    seconds = launch.pod.startup_seconds if container.get("startupProbe") else None
    return replace(launch, pod=replace(launch.pod, shared_memory=shared, startup_seconds=seconds))


def _value_of(words: list[Word], options: tuple[str, ...]) -> str:
    for at, word in enumerate(words):
        option, equals, value = word.text.partition("=")
        if option in options:
            return value if equals else words[at + 1].text if at + 1 < len(words) else ""
    return ""


def _without(words: list[Word], options: tuple[str, ...]) -> list[Word]:
    kept: list[Word] = []
    skip = False
    for word in words:
        option, equals, _ = word.text.partition("=")
        if skip:
            skip = False
        elif option in options:
            skip = not equals
        else:
            kept.append(word)
    return kept
