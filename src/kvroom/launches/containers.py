"""``docker run`` and its relatives: which image, which GPUs, which environment, and the command inside."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from kvroom.launches.variables import Word
from kvroom.redaction import is_secret_name

RUNNERS = frozenset({"docker", "podman", "nerdctl", "docker.exe", "podman.exe"})
_BOOLEAN = frozenset(
    {
        *("--detach", "--interactive", "--tty", "--rm", "--init", "--privileged", "--publish-all"),
        *("--no-healthcheck", "--oom-kill-disable", "--read-only", "--sig-proxy", "--disable-content-trust"),
        *(
            "--quiet",
            "--help",
            "--replace",
            "--env-host",
            "--no-hosts",
            "--no-hostname",
            "--rmi",
            "--http-proxy",
        ),
        *("--tls-verify", "--use-api-socket", "--insecure-registry", "--all-platforms", "--read-only-tmpfs"),
    }
)
_BOOLEAN_SHORT = frozenset("ditPq")
"""Short options without a value; a cluster such as ``-itd`` is made of them."""
_GLOBAL_VALUED = frozenset(
    {"--context", "-c", "--host", "-H", "--config", "--log-level", "-l", "--namespace", "-n", "--connection"}
)
_TAG_VERSION = re.compile(r"(?:vllm[-_]?v?|^v?|[-_]v)(\d+\.\d+\.\d+)(?:$|[^\d.])", re.IGNORECASE)
_OWN_VERSIONS = re.compile(r"(?:^|/)(?:lmcache|llm-d|rayproject)/")
_DEVICES = re.compile(r"device=([^\"']+)")


@dataclass(slots=True)
class ContainerRun:
    """One container start, before its command is looked at."""

    image: Word
    command: list[Word]
    entrypoint: Word | None = None
    env: dict[str, Word] = field(default_factory=dict)
    gpus: int | None = None
    notes: list[str] = field(default_factory=list)

    @property
    def serves(self) -> bool:
        """Whether the image starts the server by itself, so that its arguments are the server's."""
        name = self.image.text.split("@", 1)[0]
        repository = name.rsplit("/", 1)[-1].split(":", 1)[0]
        return self.entrypoint is None and "vllm" in repository and ("openai" in repository or "serve" in repository)

    @property
    def is_vllm(self) -> bool:
        """Whether the image's name speaks of vLLM."""
        return "vllm" in self.image.text.lower()


def image_version(image: str) -> str | None:
    """The vLLM version in an image's tag, or None; LMCache's and llm-d's images count their own versions.

    >>> image_version("vllm/vllm-openai:v0.28.0"), image_version("rocm/vllm:rocm6.3_vllm_0.8.5_2025")
    ('0.28.0', '0.8.5')
    >>> image_version("lmcache/vllm-openai:v0.3.9"), image_version("ghcr.io/llm-d/llm-d-cuda:v0.9.0")
    (None, None)
    """
    name = image.split("@", 1)[0].rsplit("/", 1)[-1]
    _, colon, tag = name.partition(":")
    if "vllm" not in tag and _OWN_VERSIONS.search(image):
        return None
    match = _TAG_VERSION.search(tag) if colon else None
    return match.group(1) if match else None


def read_run(words: list[Word]) -> ContainerRun | None:
    """The container that ``words`` (after ``docker``) start; None when they start none."""
    at = _skip_global(words)
    if at < len(words) and words[at].text == "container":
        at += 1
    if at >= len(words) or words[at].text not in ("run", "create"):
        return None
    at += 1
    run = ContainerRun(Word(""), [])
    while at < len(words):
        text = words[at].text
        if text == "--":
            at += 1
            break
        if not text.startswith("-") or text == "-":
            break
        at = _read_option(words, at, run)
    if at >= len(words):
        return None
    run.image = words[at]
    run.command = words[at + 1 :]
    return run


def _skip_global(words: list[Word]) -> int:
    at = 0
    while at < len(words) and words[at].text.startswith("-"):
        at += 2 if words[at].text in _GLOBAL_VALUED else 1
    return at


def _read_option(words: list[Word], at: int, run: ContainerRun) -> int:
    """Take note of one option at ``at``; returns the place after it and its value."""
    word = words[at]
    name, equals, attached = word.text.partition("=")
    if name.startswith("--"):
        if name in _BOOLEAN:
            return at + 1
        if equals:
            _keep(name, Word(attached, word.unknown), run)
            return at + 1
    else:
        letters = word.text[1:]
        spot = next((n for n, letter in enumerate(letters) if letter not in _BOOLEAN_SHORT), None)
        if spot is None:
            return at + 1
        name = "-" + letters[spot]
        if letters[spot + 1 :]:
            _keep(name, Word(letters[spot + 1 :].removeprefix("="), word.unknown), run)
            return at + 1
    if at + 1 < len(words):
        _keep(name, words[at + 1], run)
    return at + 2


def _keep(name: str, value: Word, run: ContainerRun) -> None:
    if name in ("-e", "--env"):
        variable, equals, text = value.text.partition("=")
        if equals:
            run.env[variable] = Word(text, value.unknown)
        elif not is_secret_name(variable):
            run.notes.append(f"The container takes {variable[:60]} from its host's environment, which is not known.")
    elif name == "--env-file":
        run.notes.append(f"The environment file {value.text[:80]} was not read.")
    elif name == "--entrypoint":
        run.entrypoint = value
    elif name == "--gpus":
        run.gpus = _count_gpus(value.text)
    elif name == "--device" and "gpu=" in value.text:
        which = value.text.rsplit("gpu=", 1)[1]
        run.gpus = None if which == "all" else (run.gpus or 0) + 1


def _count_gpus(text: str) -> int | None:
    """How many GPUs ``--gpus`` gives: a number, the devices it lists, or None for all."""
    text = text.strip().strip("\"'")
    if text.isascii() and text.isdigit() and len(text) < 5:
        return int(text) or None
    listed = _DEVICES.search(text)
    if listed:
        return len([part for part in listed.group(1).split(",") if part.strip() and "=" not in part]) or None
    count = re.search(r"count=(\d{1,4})\b", text)
    return int(count.group(1)) if count else None
