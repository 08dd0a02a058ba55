"""A deployment as a command and as ``docker run``, one option a line, quoted for a shell."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from kvroom.deploy.deployment import CACHE, Deployment
from kvroom.units import GIB


def command_line(deployment: Deployment) -> str:
    """``vllm serve`` with explicit flags, and the check that it passes as a comment."""
    program = [*deployment.program, deployment.words[0]]
    prefix = [f"{name}={shlex.quote(value)}" for name, value in deployment.env.items()]
    first = " ".join([*prefix, shlex.join(program)])
    return _comments(deployment, f" --vllm {deployment.release}") + _lines([first, *_options(deployment.words[1:])])


def docker_line(deployment: Deployment) -> str:
    """``docker run`` with the release's image; secrets come from the shell's environment."""
    options = [f"docker run --rm --name {deployment.name}"]
    if deployment.amd:
        options.append("--device /dev/kfd --device /dev/dri --group-add video")
    else:
        options.append(f"--gpus {deployment.gpus}")
    options.append(f"--shm-size {deployment.shared_bytes // GIB}g")
    options.append(f"-p {deployment.port}:{deployment.port}")
    if deployment.folder:
        options.append(f"-v {shlex.quote(f'{deployment.folder}:{deployment.folder}:ro')}")
    else:
        options.append(f'-v "$HOME/.cache/huggingface:{CACHE}"')
    options += [f"-e {name}" for name in deployment.secrets]
    options += [f"-e {shlex.quote(f'{name}={value}')}" for name, value in deployment.env.items()]
    options.append(f"--entrypoint {deployment.program[0]}")
    options.append(f"{deployment.image} {shlex.join([*deployment.program[1:], deployment.words[0]])}")
    return _comments(deployment) + _lines([*options, *_options(deployment.words[1:])])


def _comments(deployment: Deployment, more: str = "") -> str:
    check = f"kvroom check --gpu {shlex.quote(f'{deployment.gpus}x {deployment.device.name}')}{more} FILE"
    return "".join(f"# {row}\n" for row in (*deployment.comments, f"Check it: {check}"))


def _options(words: Sequence[str]) -> list[str]:
    """Each option with its values as one text."""
    lines: list[str] = []
    for word in words:
        if word.startswith("-") and len(word) > 1 and not word[1].isdigit():
            lines.append(word if word.replace("-", "").isalnum() else shlex.quote(word))
        elif lines:
            lines[-1] += " " + shlex.quote(word)
        else:
            lines.append(shlex.quote(word))
    return lines


def _lines(parts: Sequence[str]) -> str:
    return " \\\n  ".join(parts) + "\n"
