"""Dependencies point one way, and starting kvroom loads nothing heavy."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "kvroom"
BASE = {"units", "errors", "version", "redaction", "files"}
ALLOWED = {
    "units": set(),
    "errors": {"redaction"},
    "version": set(),
    "redaction": set(),
    "files": set(),
    "models": BASE,
    "devices": BASE,
    "environment": BASE | {"devices"},
    "launches": BASE | {"vllm"},
    "vllm": BASE | {"models", "devices"},
    "ledger": BASE | {"models", "devices", "vllm"},
    "logs": BASE | {"data"},
    "remedies": BASE | {"models", "devices", "vllm", "ledger"},
    "findings": BASE | {"models", "devices", "vllm", "ledger", "logs", "launches"},
    "tracing": BASE | {"models", "devices", "vllm", "ledger", "plans"},
    "learned": BASE | {"models", "vllm", "ledger"},
    "plans": BASE | {"models", "devices", "vllm", "ledger", "remedies", "findings", "launches", "learned"},
    "doctor": BASE | {"devices", "vllm", "ledger", "remedies", "findings", "launches", "learned", "logs", "plans"},
    "compare": BASE | {"devices", "vllm", "ledger", "launches", "logs", "plans", "doctor"},
    "deploy": BASE | {"devices", "vllm", "ledger", "findings", "launches", "plans"},
    "server": BASE | {"vllm", "launches"},
    "trials": BASE
    | {"models", "devices", "vllm", "ledger", "remedies", "findings", "launches", "learned", "logs", "plans"}
    | {"environment", "doctor", "server"},
    "throughput": BASE | {"models", "devices", "vllm", "ledger", "plans", "logs"},
    "sizing": BASE | {"models", "devices", "vllm", "ledger", "plans", "throughput"},
    "plugin": BASE | {"models", "devices", "vllm", "ledger", "remedies", "learned"},
    "report": BASE
    | {
        "launches",
        "compare",
        "environment",
        "models",
        "devices",
        "vllm",
        "ledger",
        "remedies",
        "findings",
        "plans",
        "tracing",
        "learned",
        "logs",
        "doctor",
        "server",
        "trials",
        "throughput",
        "sizing",
    },
    "cli": BASE
    | {
        "deploy",
        "compare",
        "environment",
        "models",
        "devices",
        "vllm",
        "ledger",
        "launches",
        "findings",
        "plans",
        "report",
        "tracing",
        "learned",
        "logs",
        "doctor",
        "server",
        "trials",
        "throughput",
        "sizing",
    },
    "data": set(),
    "__init__": {"version", "environment", "plans", "doctor"},
    "__main__": {"cli"},
}


def _folder(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def _imports(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        names = []
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        found |= {name.split(".")[1] for name in names if name.startswith("kvroom.")}
    return found


@pytest.mark.parametrize("path", sorted(SOURCE.rglob("*.py")), ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_follow_the_arrows(path: Path) -> None:
    folder = _folder(path)
    assert _imports(path) - {folder} <= ALLOWED[folder]


def _loaded(statement: str) -> set[str]:
    code = f"{statement}\nimport sys\nprint(' '.join(sys.modules))"
    return set(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split())


def test_importing_kvroom_loads_nothing_heavy() -> None:
    assert not {"torch", "transformers", "rich", "yaml", "click", "huggingface_hub", "httpx"} & _loaded("import kvroom")


def test_planning_needs_no_network_client_and_no_rich() -> None:
    loaded = _loaded("import kvroom; kvroom.plan('Qwen/Qwen3-8B', gpu='RTX 4090', offline=True).verdict")
    assert not {"torch", "transformers", "rich", "yaml", "huggingface_hub", "httpx", "pynvml", "sqlite3"} & loaded


def test_the_command_line_starts_without_what_only_some_commands_need() -> None:
    assert not {"rich", "yaml", "sqlite3", "platformdirs", "kvroom.learned"} & _loaded("import kvroom.cli.main")
