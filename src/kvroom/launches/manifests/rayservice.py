"""KubeRay's RayService with Ray Serve LLM: each entry of ``llm_configs`` to a launch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from kvroom.errors import UsageError
from kvroom.launches.containers import ContainerRun
from kvroom.launches.launch import Found, Launch, Pod, Unanswered
from kvroom.launches.manifests.cards import RAY_LABEL, card_of_label, cards_of, gpus_of
from kvroom.launches.manifests.documents import read_documents
from kvroom.launches.manifests.environment import open_flags
from kvroom.launches.manifests.pods import Around, token_lines, unanswered
from kvroom.launches.manifests.tree import Tree
from kvroom.launches.read import launches_of
from kvroom.launches.variables import Word


def ray_service(root: Tree, around: Around) -> list[Found]:
    """The launches of a RayService; its ``serveConfigV2`` is YAML in a text."""
    config = root.get("spec", "serveConfigV2")
    inner, broken = _inner(config, around)
    found: list[Found] = list(broken)
    for tree in inner:
        for app in tree.get("applications").elements():
            llms = list(_llm_configs(app.get("args", "llm_configs")))
            found += [_launch(each, root, around) for each in llms]
            if not llms and "vllm" in config.text.lower():
                found.append(_own_code(app, around))
    return found


def _inner(config: Tree, around: Around) -> tuple[list[Tree], list[Found]]:
    trees, broken = read_documents(config.text, around.source)
    below = config.line + (config.node is not None and getattr(config.node, "style", "") in {"|", ">"}) - 1
    for tree in trees:
        tree.document.offset += below
        tree.document.rows = config.document.rows
        tree.document.actions = config.document.actions
    return trees, [replace(each, line=each.line + below) for each in broken]


def _llm_configs(place: Tree) -> Iterator[Tree]:
    for each in place.elements():
        if each.kind == "map":
            yield each


def _own_code(app: Tree, around: Around) -> Unanswered:
    shown = app.get("import_path").shown or "its code"
    return Unanswered(
        around.source,
        app.line,
        f"{around.kind}, application {app.get('name').shown}",
        f"Python code ({shown}) decides how vLLM is started.",
        "Check the command that it amounts to: kvroom check -- vllm serve ...",
    )


def _launch(llm: Tree, root: Tree, around: Around) -> Found:
    """The launch of one entry: ``engine_kwargs`` are vLLM's arguments under their Python names."""
    loading = llm.get("model_loading_config")
    model = loading.get("model_source") if loading.get("model_source").text else loading.get("model_id")
    words = [model.word]
    for name, value in llm.get("engine_kwargs").items():
        words += _flag(name, value)
    env = {name: value.word for name, value in llm.get("runtime_env", "env_vars").items()}
    run = ContainerRun(Word(""), [Word("vllm"), Word("serve"), *words], None, env)
    try:
        (launch,) = launches_of(run, around.source, llm.line)
    except UsageError as error:
        return unanswered(around.source, llm.line, f"{around.kind}, {model.shown}", error)
    return _with_cluster(launch, llm, root, around)


def _flag(name: str, value: Tree) -> list[Word]:
    option = "--" + name.replace("_", "-")
    if value.kind == "map":
        return [Word(f"{option}.{key}={inner.text}") for key, inner in value.items() if inner.kind == "text"]
    if value.kind == "list":
        return [Word(option), *value.words()]
    if value.text.lower() in {"true", "false"}:
        return [Word(option if value.true else "--no-" + name.replace("_", "-"))]
    return [Word(option), value.word] if value else []


def _with_cluster(launch: Launch, llm: Tree, root: Tree, around: Around) -> Launch:
    """``launch`` with the GPUs and cards of the cluster's workers."""
    kind = llm.get("accelerator_type").text
    cards = card_of_label(RAY_LABEL, kind) if kind else ()
    notes = list(launch.notes)
    if kind and not cards:
        notes.append(f"The accelerator type {kind[:60]} is not known here; give the card with --gpu.")
    gpus, nodes, line, image = 0, 0, 0, ""
    for group in root.get("spec", "rayClusterConfig", "workerGroupSpecs").elements():
        pod = group.get("template", "spec")
        asked = [gpus_of(each.get("resources")) for each in pod.get("containers").elements()]
        count = sum(number or 0 for number, _, _ in asked)
        if not count:
            continue
        most = group.get("maxReplicas").whole or group.get("replicas").whole or 1
        gpus, nodes = max(gpus, count), nodes + most
        line = line or next((at for number, at, _ in asked if number), 0)
        image = image or next((each.get("image").shown for each in pod.get("containers").elements()), "")
        cards = cards or cards_of(pod).names
    lines = token_lines(launch.tokens, llm)
    flags = open_flags(launch.tokens, lines, llm.document.rows)
    places = {"container": llm.line, "gpus": line or llm.line, "image": llm.line, **flags}
    pod_facts = Pod(
        around.kind, launch.tokens[0], image, True, gpus or None, max(1, nodes), None, None, tuple(flags), lines=places
    )
    notes.append("Ray's image does not say its vLLM version.")
    return replace(
        launch,
        line=lines[0] if lines else llm.line,
        token_lines=lines,
        gpu_hint=gpus * max(1, nodes) or None,
        notes=tuple(notes),
        cards=cards,
        pod=pod_facts,
    )
