"""A pod to the launches of its containers, with what the pod gives them: GPUs, shared memory, time to start."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from kvroom.errors import UsageError
from kvroom.launches.containers import ContainerRun
from kvroom.launches.launch import DEFAULT_SHARED_MEMORY, Found, Launch, Pod, Unanswered
from kvroom.launches.manifests.cards import cards_of, gpus_of
from kvroom.launches.manifests.environment import Environment, is_open_secret, open_flags, put_in, read_environment
from kvroom.launches.manifests.quantity import quantity
from kvroom.launches.manifests.tree import Tree
from kvroom.launches.read import launches_of
from kvroom.redaction import is_secret_name

RENDER = "Render it first: helm template CHART | kvroom check -"
_PROBE = {"initialDelaySeconds": 0, "periodSeconds": 10, "failureThreshold": 3}
"""Kubernetes' defaults (core/v1 Probe)."""


@dataclass(frozen=True, slots=True)
class Around:
    """What stands around a pod: the object that makes it, and what its controller adds."""

    source: str
    kind: str
    configs: Mapping[str, Tree] = field(default_factory=dict)
    nodes: int = 1
    given: Mapping[str, str] = field(default_factory=dict)
    """Variables that the controller sets."""


def pod_launches(pod: Tree, around: Around) -> list[Found]:
    """The launches of a pod's containers (its ``spec``), and what cannot be told of one that runs vLLM."""
    found: list[Found] = []
    for container in pod.get("containers").elements():
        found += container_launches(container, pod, around)
    return found


def container_launches(container: Tree, pod: Tree, around: Around) -> list[Found]:
    """The launches of one container of ``pod``."""
    try:
        env = read_environment(container, around.configs, around.given)
        run = _run(container, env)
        launches = launches_of(run, around.source, container.line)
    except UsageError as error:
        return [_unanswered(container, around, error)]
    why = unsuited(container)
    if launches and why:
        return [Unanswered(around.source, container.line, _name(container, around), why)]
    unsure = [each for each in container.actions() if each.control and each.asks]
    if unsure and (launches or _speaks_of_vllm(container)):
        return [_unanswered(container, around, None)]
    if not launches and _is_server(container, around, run):
        return [_other_start(container, around, run)]
    return [placed(launch, container, pod, around, env) for launch in launches]


def _run(container: Tree, env: Environment) -> ContainerRun:
    command = [put_in(word, env) for word in container.get("command").words()]
    words = [*command[1:], *(put_in(word, env) for word in container.get("args").words())]
    run = ContainerRun(container.get("image").word, words, command[0] if command else None, dict(env.values))
    run.notes += [f"What {each} sets is not known here." for each in env.sources]
    run.notes += [
        f"{name} comes from {origin}, which is not known here."
        for name, origin in env.elsewhere.items()
        if name.startswith("VLLM_") and not is_secret_name(name)
    ]
    return run


def placed(launch: Launch, container: Tree, pod: Tree, around: Around, env: Environment) -> Launch:
    """``launch`` with its lines, its cards and what the pod gives it."""
    lines = token_lines(launch.tokens, container)
    cards = cards_of(pod)
    gpus, gpu_line, part = gpus_of(container.get("resources"))
    shared, shared_line = _shared_memory(container, pod)
    seconds, probe_line = _startup_seconds(container)
    secrets = tuple(
        name
        for name, word in env.values.items()
        if name in env.lines and is_secret_name(name) and not word.unknown and is_open_secret(word.text)
    )
    places = {
        "container": container.line,
        "image": container.get("image").line or container.line,
        "gpus": gpu_line or container.line,
        "shared_memory": shared_line or container.line,
        "probe": probe_line or container.line,
        **env.lines,
    }
    flags = open_flags(launch.tokens, lines, container.document.rows)
    here = Pod(
        around.kind,
        container.get("name").shown,
        container.get("image").shown,
        True,
        gpus,
        around.nodes,
        shared,
        seconds,
        (*secrets, *flags),
        part or cards.part,
        {**places, **flags},
    )
    count = gpus * around.nodes if gpus else None
    return replace(
        launch,
        line=lines[0] if lines else container.line,
        token_lines=lines,
        gpu_hint=launch.gpu_hint if launch.gpu_hint is not None else count,
        notes=(*launch.notes, *cards.notes),
        cards=cards.names,
        pod=here,
    )


def token_lines(tokens: Sequence[str], place: Tree) -> tuple[int, ...]:
    """The line of each token, looked for from one to the next on the lines of ``place``."""
    rows = place.document.rows
    first, last = place.line - 1, min(place.end, len(rows))
    at = first
    lines: list[int] = []
    for token in tokens:
        # a value stands where its option stands or little below; an option may be anywhere
        ends = (last, last) if token.startswith("-") or not lines else (min(at + 3, last), at)
        for start, end in ((at, ends[0]), (first, ends[1])):
            hit = next((n for n in range(start, end) if token in rows[n]), None)
            if hit is not None:
                at = hit
                break
        lines.append(at + 1)
    return tuple(lines)


def _unanswered(container: Tree, around: Around, error: UsageError | None) -> Unanswered:
    """What cannot be told: the template's values that are missing, else what the error says."""
    actions = [each for each in container.actions() if each.asks]
    name = _name(container, around)
    if actions:
        wants = "; ".join(dict.fromkeys(f"{each.wants} (line {each.line})" for each in actions[:12]))
        more = f" and {len(actions) - 12} more" if len(actions) > 12 else ""
        return Unanswered(
            around.source, container.line, name, f"A template whose values are missing: {wants}{more}.", RENDER
        )
    assert error is not None
    return unanswered(around.source, container.line, name, error)


def unanswered(source: str, line: int, name: str, error: Exception) -> Unanswered:
    """What ``error`` says of the launch ``name``; the line that it names is that of the container."""
    if not isinstance(error, UsageError):
        return Unanswered(source, line, name, f"{error}.")
    problem = error.problem.split(": ", 1)[-1] if error.problem.startswith("Line ") else error.problem
    return Unanswered(source, line, name, problem[:1].upper() + problem[1:], error.cure)


def _name(container: Tree, around: Around) -> str:
    return f"{around.kind}, container {container.get('name').shown}"


def unsuited(container: Tree) -> str:
    """Why the rules of GPUs do not hold for a container, empty where they do."""
    image = container.get("image").text.lower()
    for part in ("limits", "requests"):
        if any(key == "google.com/tpu" for key, _ in container.get("resources", part).items()):
            return "It runs on TPUs, whose memory has no rules here."
    if gpus_of(container.get("resources"))[0] is None and "vllm" in image and "cpu" in image:
        return "It runs on CPUs, where the KV cache is given as --kv-cache-memory-bytes or VLLM_CPU_KVCACHE_SPACE."
    return ""


def _speaks_of_vllm(container: Tree) -> bool:
    words = [
        container.get("image").text,
        *(w.text for part in ("command", "args") for w in container.get(part).words()),
    ]
    return any("vllm" in word.lower() for word in words)


def _is_server(container: Tree, around: Around, run: ContainerRun) -> bool:
    """Whether a container without a launch must have one: vLLM's image, a GPU, and a program that is not Ray's."""
    gpus, _, _ = gpus_of(container.get("resources"))
    text = " ".join(word.text for word in ([run.entrypoint] if run.entrypoint else []) + run.command)
    worker = "ray start" in text or "ray_address" in text or "multi-node-serving" in text or "sleep" in text
    return bool(gpus) and run.is_vllm and not worker and not around.kind.startswith("Ray")


def _other_start(container: Tree, around: Around, run: ContainerRun) -> Unanswered:
    words = " ".join(word.text for word in ([run.entrypoint] if run.entrypoint else []) + run.command)
    shown = words.strip().split("\n")[0][:80] or "the image's own command"
    return Unanswered(
        around.source,
        container.line,
        _name(container, around),
        f"It runs vLLM's image with '{shown}', which starts no server that is written here.",
        "Check the script that it runs, or the command after `--`: kvroom check -- vllm serve ...",
    )


def _shared_memory(container: Tree, pod: Tree) -> tuple[int | None, int]:
    """Bytes of /dev/shm (None without a limit) and the line that says so."""
    if pod.get("hostIPC").true:
        return None, pod.get("hostIPC").line
    for mount in container.get("volumeMounts").elements():
        if mount.get("mountPath").text.rstrip("/") != "/dev/shm":  # noqa: S108
            continue
        for volume in pod.get("volumes").elements():
            if volume.get("name").text == mount.get("name").text:
                limit = volume.get("emptyDir", "sizeLimit")
                return quantity(limit.text), limit.line or mount.line
        return None, mount.line
    return DEFAULT_SHARED_MEMORY, 0


def _startup_seconds(container: Tree) -> tuple[int | None, int]:
    """Seconds until a probe restarts a container that does not answer yet; None where none does."""
    for name in ("startupProbe", "livenessProbe"):
        probe = container.get(name)
        if probe:
            delay, period, times = (
                default if probe.get(key).whole is None else probe.get(key).whole or 0
                for key, default in _PROBE.items()
            )
            return delay + period * times, probe.line
    return None, 0
