"""A deployment as Kubernetes objects: a claim for the weights, a Deployment, a Service."""

from __future__ import annotations

from typing import Any

from kvroom.deploy.deployment import CACHE, SECRET, Deployment
from kvroom.deploy.yaml_text import yaml_text
from kvroom.units import GIB

_KEYS = {"HF_TOKEN": "token", "VLLM_API_KEY": "api-key"}
_STEP = 10


def manifest(deployment: Deployment) -> str:
    """The objects as one YAML file."""
    documents = [_deployment(deployment), _service(deployment)]
    if not deployment.folder:
        documents.insert(0, _claim(deployment))
    comments = [*deployment.comments]
    if "HF_TOKEN" in deployment.secrets:
        comments.append(f"The token of gated models: kubectl create secret generic {SECRET} --from-literal=token=...")
    check = "kvroom check FILE" if deployment.label else "kvroom check --gpu NAME FILE (no node label names this card)"
    return yaml_text(documents, (*comments, f"Check it: {check}"))


def _labels(deployment: Deployment) -> dict[str, str]:
    return {"app.kubernetes.io/name": deployment.name}


def _claim(deployment: Deployment) -> dict[str, Any]:
    """A volume for the weights and half as much again, in whole tens of GiB."""
    size = max(10, -(-deployment.weights_bytes * 3 // 2 // GIB // 10) * 10)
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": f"{deployment.name}-cache", "labels": _labels(deployment)},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": f"{size}Gi"}}},
    }


def _deployment(deployment: Deployment) -> dict[str, Any]:
    pod: dict[str, Any] = {
        "enableServiceLinks": False,  # a service called vllm would set VLLM_PORT
        "containers": [_container(deployment)],
        "volumes": [
            {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": f"{deployment.shared_bytes // GIB}Gi"}},
            _weights_volume(deployment),
        ],
    }
    if deployment.label:
        pod = {"nodeSelector": {"nvidia.com/gpu.product": deployment.label}, **pod}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": deployment.name, "labels": _labels(deployment)},
        "spec": {
            "replicas": 1,
            "strategy": {"type": "Recreate"},
            "progressDeadlineSeconds": deployment.startup_seconds + 600,
            "selector": {"matchLabels": _labels(deployment)},
            "template": {"metadata": {"labels": _labels(deployment)}, "spec": pod},
        },
    }


def _container(deployment: Deployment) -> dict[str, Any]:
    probe = {"httpGet": {"path": "/health", "port": "http"}, "periodSeconds": _STEP, "timeoutSeconds": 5}
    gpu = "amd.com/gpu" if deployment.amd else "nvidia.com/gpu"
    return {
        "name": "vllm",
        "image": deployment.image,
        "command": list(deployment.program),
        "args": [_plain(word) for word in deployment.words],
        "env": [
            *(_secret(name) for name in deployment.secrets),
            *({"name": name, "value": _plain(value)} for name, value in deployment.env.items()),
        ],
        "ports": [{"name": "http", "containerPort": deployment.port}],
        "resources": {"requests": {gpu: str(deployment.gpus)}, "limits": {gpu: str(deployment.gpus)}},
        "startupProbe": {**probe, "failureThreshold": deployment.startup_seconds // _STEP},
        "readinessProbe": {**probe, "failureThreshold": 3},
        "livenessProbe": {**probe, "failureThreshold": 3},
        "volumeMounts": [
            {"name": "shm", "mountPath": "/dev/shm"},  # noqa: S108
            {
                "name": "weights",
                "mountPath": deployment.folder or CACHE,
                **({"readOnly": True} if deployment.folder else {}),
            },
        ],
    }


def _secret(name: str) -> dict[str, Any]:
    key = _KEYS.get(name, name.lower().replace("_", "-"))
    secret = SECRET if name == "HF_TOKEN" else "vllm"
    reference = {"name": secret, "key": key, "optional": name == "HF_TOKEN"}
    return {"name": name, "valueFrom": {"secretKeyRef": reference}}


def _weights_volume(deployment: Deployment) -> dict[str, Any]:
    if deployment.folder:
        return {"name": "weights", "hostPath": {"path": deployment.folder, "type": "Directory"}}
    return {"name": "weights", "persistentVolumeClaim": {"claimName": f"{deployment.name}-cache"}}


def _service(deployment: Deployment) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": deployment.name, "labels": _labels(deployment)},
        "spec": {
            "selector": _labels(deployment),
            "ports": [{"name": "http", "port": deployment.port, "targetPort": "http"}],
        },
    }


def _plain(text: str) -> str:
    """``text`` as the container is to see it: ``$(`` would be a reference to a variable."""
    return text.replace("$(", "$$(")
