"""Compose files to launches: interpolation, the forms of a command, GPUs and shared memory."""

from __future__ import annotations

from textwrap import dedent

import pytest

from kvroom.launches.launch import DEFAULT_SHARED_MEMORY, Found, Launch, Unanswered
from kvroom.launches.manifests import read_manifest
from kvroom.units import GIB


def read(text: str, **variables: str) -> list[Found]:
    return read_manifest(dedent(text).lstrip("\n"), "compose.yaml", variables=variables)


def one(service: str, **variables: str) -> Launch:
    (found,) = read(f"services:\n  vllm: {{image: 'vllm/vllm-openai:v0.28.0', {service}}}", **variables)
    assert isinstance(found, Launch), found
    return found


@pytest.mark.parametrize(
    ("service", "tokens"),
    [
        ("command: --model m -tp 2", ("--model", "m", "-tp", "2")),
        ("command: [--model, m]", ("--model", "m")),
        ("entrypoint: [vllm, serve], command: m --port 1", ("m", "--port", "1")),
        ("entrypoint: '', command: [vllm, serve, m]", ("m",)),
        ("command: 'bash -c \"vllm serve m\"', entrypoint: []", ("m",)),
        ("command: '--model ${MODEL}'", ("--model", "org/x")),
        ("command: '--model ${MODEL:?set it} -tp ${TP:-4}'", ("--model", "org/x", "-tp", "4")),
        ("command: '--model $MODEL ${EAGER:+--enforce-eager}'", ("--model", "org/x")),
        ("command: ['--model', '${OTHER-${MODEL}}']", ("--model", "org/x")),
        ("command: [m, --api-key, $KEY]", ("m", "--api-key", "$KEY")),
        ("command: [m, --chat-template, 'a$$b']", ("m", "--chat-template", "a$b")),
    ],
)
def test_the_command_is_put_together_as_compose_does(service: str, tokens: tuple[str, ...]) -> None:
    assert one(service, MODEL="org/x").tokens == tokens


@pytest.mark.parametrize(
    ("service", "gpus", "shared"),
    [
        ("command: [m]", None, DEFAULT_SHARED_MEMORY),
        ("command: [m], gpus: all, ipc: host", None, None),
        ("command: [m], shm_size: 16gb, gpus: [{count: 2}]", 2, 16 * GIB),
        ("command: [m], volumes: ['/dev/shm:/dev/shm']", None, None),
        ("command: [m], deploy: {resources: {reservations: {devices: [{driver: nvidia, count: 4}]}}}", 4, 64 * 2**20),
        (
            "command: [m], deploy: {resources: {reservations: {devices: [{device_ids: ['0', '3']}]}}}",
            2,
            64 * 2**20,
        ),
        ("command: [m], environment: {CUDA_VISIBLE_DEVICES: '0,1'}, gpus: all", 2, 64 * 2**20),
    ],
)
def test_gpus_and_shared_memory_are_read(service: str, gpus: int | None, shared: int | None) -> None:
    launch = one(service)
    assert launch.pod is not None
    assert (launch.gpu_hint, launch.pod.shared_memory) == (gpus, shared)
    assert launch.pod.cluster is False


def test_merged_services_keep_their_lines_and_the_card_of_the_extension_field() -> None:
    first, second = read(
        """
        x-base: &base
          image: vllm/vllm-openai:${TAG:-v0.28.0}
          environment: [HF_TOKEN, VLLM_API_KEY=sk-0123456789]
        x-kvroom: {gpu: RTX 4090}
        services:
          a:
            <<: *base
            command:
            - --model=Qwen/Qwen3-8B
            - --max-model-len=4096
          b: {<<: *base, command: [m], x-kvroom: {gpu: L4}}
          other: {image: redis}
        """
    )
    assert isinstance(first, Launch)
    assert isinstance(second, Launch)
    assert first.token_lines == (9, 10)
    assert (first.cards, second.cards) == (("RTX 4090",), ("L4",))
    assert first.version_hint == "0.28.0"
    assert first.pod is not None
    assert first.pod.open_secrets == ("VLLM_API_KEY",)


@pytest.mark.parametrize("command", ["'--model ${MODEL}'", "[--model, $MODEL]", "'--model m -tp ${TP:?}'"])
def test_a_variable_that_decides_and_is_not_set_is_named(command: str) -> None:
    (found,) = read(f"services:\n  vllm: {{image: vllm/vllm-openai, command: {command}}}")
    assert isinstance(found, Unanswered)
    assert "MODEL" in found.reason or "TP" in found.reason
    assert found.name == "service vllm"


def test_a_quote_that_is_never_closed_is_one_item() -> None:
    (found,) = read('services:\n  vllm: {image: vllm/vllm-openai, command: "--model \'m"}')
    assert isinstance(found, Unanswered)


@pytest.mark.parametrize(
    ("variables", "secrets"),
    [
        ("[HF_TOKEN]", ()),
        ("['HF_TOKEN=${HF_TOKEN}']", ()),
        ("{HF_TOKEN: '${HF_TOKEN:?set it}'}", ()),
        ("{HF_TOKEN: '${OTHER:-hf_abcdefghijklmnop}'}", ("HF_TOKEN",)),
        ("{HF_TOKEN: hf_abcdefghijklmnop}", ("HF_TOKEN",)),
    ],
)
def test_a_secret_from_the_file_beside_it_is_not_written_out(variables: str, secrets: tuple[str, ...]) -> None:
    text = f"""
        services:
          s:
            image: vllm/vllm-openai:v0.28.0
            command: [--model, m]
            environment: {variables}
        """
    (launch,) = read_manifest(dedent(text).lstrip("\n"), "compose.yaml", variables={"HF_TOKEN": "hf_qrstuvwxyzabcdef"})

    assert isinstance(launch, Launch)
    assert launch.pod is not None
    assert launch.pod.open_secrets == secrets
