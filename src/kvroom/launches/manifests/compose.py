"""Compose files to launches: image, entrypoint, command, environment, GPUs and shared memory of each service."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import replace

from kvroom.errors import UsageError
from kvroom.launches.containers import ContainerRun
from kvroom.launches.launch import DEFAULT_SHARED_MEMORY, Found, Pod
from kvroom.launches.manifests.documents import concerns_vllm
from kvroom.launches.manifests.environment import is_open_secret, open_flags
from kvroom.launches.manifests.interpolation import interpolated
from kvroom.launches.manifests.pods import token_lines, unanswered
from kvroom.launches.manifests.quantity import docker_size
from kvroom.launches.manifests.tree import Tree
from kvroom.launches.read import launches_of
from kvroom.launches.variables import Word
from kvroom.redaction import is_secret_name

CARD = "x-kvroom"
"""The extension field that ``kvroom plan --emit compose`` names the card in: ``x-kvroom: {gpu: RTX 4090}``."""


def is_compose(root: Tree) -> bool:
    """Whether a document is a compose file: it has services, and no Kubernetes kind."""
    return root.get("services").kind == "map" and not root.get("kind")


def compose_launches(root: Tree, source: str, known: Mapping[str, str]) -> list[Found]:
    """The launches of a compose file's services; ``known`` are the variables of the ``.env`` beside it."""
    card = root.get(CARD, "gpu").text
    found: list[Found] = []
    for name, service in root.get("services").items():
        if service.kind != "map":
            continue
        here = service.get(CARD, "gpu").text or card
        try:
            found += _service(name, service, source, known, here)
        except (UsageError, ValueError) as error:
            if concerns_vllm("\n".join(service.document.rows[service.line - 1 : service.end])):
                found.append(unanswered(source, service.line, f"service {name[:60]}", error))
    return found


def _service(name: str, service: Tree, source: str, known: Mapping[str, str], card: str) -> list[Found]:
    env, lines, notes = _environment(service, known)
    entrypoint = _words(service.get("entrypoint"), known)
    command = [*entrypoint[1:], *_words(service.get("command"), known)]
    image = interpolated(service.get("image").word.text, known)
    run = ContainerRun(image, command, entrypoint[0] if entrypoint else None, env, notes=notes)
    gpus, gpu_line = _gpus(service)
    shared, shared_line = _shared_memory(service, known)
    places = {
        "container": service.line,
        "image": service.get("image").line or service.line,
        "gpus": gpu_line or service.line,
        "shared_memory": shared_line or service.line,
        "probe": service.line,
        **lines,
    }
    written = _environment(service, {})[0]  # what is taken from the `.env` file does not stand in this one
    secrets = tuple(
        key for key, word in written.items() if is_secret_name(key) and not word.unknown and is_open_secret(word.text)
    )
    pod = Pod(f"service {name[:60]}", name[:60], image.text, False, gpus, 1, shared, None, secrets, lines=places)
    found: list[Found] = []
    for launch in launches_of(run, source, service.line):
        at = token_lines(launch.tokens, service)
        flags = open_flags(launch.tokens, at, service.document.rows)
        found.append(
            replace(
                launch,
                line=at[0] if at else service.line,
                token_lines=at,
                gpu_hint=launch.gpu_hint if launch.gpu_hint is not None else gpus,
                cards=(card,) if card else (),
                pod=replace(pod, open_secrets=(*secrets, *flags), lines={**places, **flags}),
            )
        )
    return found


def _words(place: Tree, known: Mapping[str, str]) -> list[Word]:
    """The words of ``command`` or ``entrypoint``: a list as it is, a text split as a shell would, without one."""
    if place.kind == "list":
        return [_known(word, known) for word in place.words()]
    whole = _known(place.word, known)
    return [Word(each, whole.unknown if "$" in each or "{{" in each else ()) for each in shlex.split(whole.text)]


def _known(word: Word, known: Mapping[str, str]) -> Word:
    put_in = interpolated(word.text, known)
    return Word(put_in.text, (*word.unknown, *put_in.unknown))


def _environment(service: Tree, known: Mapping[str, str]) -> tuple[dict[str, Word], dict[str, int], list[str]]:
    """The variables of a service, their lines, and a note on files that were not read."""
    env: dict[str, Word] = {}
    lines: dict[str, int] = {}
    place = service.get("environment")
    pairs = [(each.text.partition("="), each) for each in place.elements()]
    for (name, equals, value), each in pairs:
        lines[name] = each.line
        if equals:
            env[name] = _known(Word(value), known)
        elif name in known:
            env[name] = Word(known[name])
    for name, each in place.items():
        lines[name] = each.line
        env[name] = _known(each.word, known)
    files = service.get("env_file")
    notes = [f"The environment file {files.shown or 'of the service'} was not read."] if files else []
    return env, lines, notes


def _gpus(service: Tree) -> tuple[int | None, int]:
    """How many GPUs a service gets (None for all, or where nothing is said) and the line that says so."""
    place = service.get("deploy", "resources", "reservations", "devices")
    devices = [*place.elements(), *service.get("gpus").elements()]
    for device in devices:
        listed = list(device.get("device_ids").elements())
        count = device.get("count")
        if device.get("driver").text in {"", "nvidia", "amd", "cdi"} and (listed or count):
            return len(listed) or count.whole, (count or device.get("device_ids")).line
    return None, place.line or service.get("gpus").line


def _shared_memory(service: Tree, known: Mapping[str, str]) -> tuple[int | None, int]:
    """Bytes of /dev/shm, None where it is the host's, and the line that says so."""
    ipc, size = service.get("ipc"), service.get("shm_size")
    if ipc.text == "host":
        return None, ipc.line
    if size:
        return docker_size(interpolated(size.text, known).text), size.line
    for volume in [*service.get("volumes").elements(), *service.get("tmpfs").elements()]:
        target = volume.get("target").text or volume.text
        if "/dev/shm" in target:  # noqa: S108
            return None, volume.line
    return DEFAULT_SHARED_MEMORY, 0
