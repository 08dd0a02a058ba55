"""What ``plan --emit`` writes starts on the real engine, and serves what the plan promised."""

from __future__ import annotations

import json
import shlex
import urllib.request
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from kvroom.cli.main import app
from kvroom.server.metrics import parse_metrics
from tests.engine import environment, tiny
from tests.engine.serving import BLOCK, interpreter, started

pytestmark = pytest.mark.engine
BLOCKS, LENGTH = 40, 2048
POOL = BLOCKS * BLOCK * 1024


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.make(tmp_path_factory.mktemp("tiny"), interpreter())


def emitted(model: Path, form: str) -> str:
    """The deployment of a launch with a pool of its own size, so that a CPU can hold it."""
    flags = ["--kv-cache-memory-bytes", str(POOL), "--max-model-len", str(LENGTH), "--block-size", str(BLOCK)]
    asked = ["plan", str(model), "--gpu", "L4", "--vllm", environment.NEWEST, "--offline", *flags, "--emit", form]
    found = CliRunner().invoke(app, asked, catch_exceptions=False)
    assert found.exit_code == 0, found.output
    return found.stdout


def words_of(text: str, form: str) -> list[str]:
    """The words that the deployment starts in its container or shell."""
    if form == "command":
        return shlex.split(text.replace("\\\n", " "), comments=True)
    if form == "compose":
        (service,) = yaml.safe_load(text)["services"].values()
        return [*service["entrypoint"], *service["command"]]
    deployment = next(yaml.safe_load_all(text))
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    return [*container["command"], *container["args"]]


@pytest.mark.parametrize("form", ["command", "compose", "k8s"])
def test_an_emitted_deployment_starts_and_serves_its_length(form: str, model: Path, tmp_path: Path) -> None:
    words = words_of(emitted(model, form), form)
    assert words[:3] == ["vllm", "serve", str(model)]
    server = [str(interpreter()), "-m", "vllm.entrypoints.openai.api_server", "--model", str(model)]
    with started([*server, *words[3:]], tmp_path / "log") as url:
        with urllib.request.urlopen(f"{url}/v1/models", timeout=30) as answer:
            (served,) = json.load(answer)["data"]
        with urllib.request.urlopen(f"{url}/metrics", timeout=30) as answer:
            claim = parse_metrics(answer.read().decode()).claim

    assert served["max_model_len"] == LENGTH
    assert claim is not None
    assert claim.num_blocks == BLOCKS
