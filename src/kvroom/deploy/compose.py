"""A deployment as a compose file."""

from __future__ import annotations

from typing import Any

from kvroom.deploy.deployment import CACHE, Deployment
from kvroom.deploy.yaml_text import yaml_text
from kvroom.units import GIB


def compose_file(deployment: Deployment) -> str:
    """A compose file with one service; ``x-kvroom`` names the card for ``kvroom check``."""
    service: dict[str, Any] = {
        "image": deployment.image,
        "entrypoint": [deployment.program[0]],
        "command": [_plain(word) for word in (*deployment.program[1:], *deployment.words)],
        "ports": [f"{deployment.port}:{deployment.port}"],
        "environment": [*deployment.secrets, *(f"{name}={_plain(value)}" for name, value in deployment.env.items())],
        "shm_size": f"{deployment.shared_bytes // GIB}gb",
        "volumes": [
            f"{deployment.folder}:{deployment.folder}:ro" if deployment.folder else f"huggingface:{CACHE}",
        ],
        **_gpus(deployment),
        "healthcheck": {
            "test": [
                "CMD",
                "python3",
                "-c",
                f"from urllib.request import urlopen; urlopen('http://127.0.0.1:{deployment.port}/health')",
            ],
            "interval": "10s",
            "timeout": "5s",
            "retries": 3,
            "start_period": f"{deployment.startup_seconds}s",
        },
        "restart": "unless-stopped",
    }
    data: dict[str, Any] = {
        "services": {deployment.name: {key: value for key, value in service.items() if value}},
        "x-kvroom": {"gpu": deployment.device.name},
    }
    if not deployment.folder:
        data["volumes"] = {"huggingface": {}}
    return yaml_text([data], (*deployment.comments, "Check it: kvroom check FILE"))


def _gpus(deployment: Deployment) -> dict[str, Any]:
    if deployment.amd:
        return {"devices": ["/dev/kfd", "/dev/dri"], "group_add": ["video"]}
    device = {"driver": "nvidia", "count": deployment.gpus, "capabilities": ["gpu"]}
    return {"deploy": {"resources": {"reservations": {"devices": [device]}}}}


def _plain(text: str) -> str:
    """``text`` as compose is to give it on: a dollar sign is written twice."""
    return text.replace("$", "$$")
