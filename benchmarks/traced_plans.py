"""KV plans of traced launches beside recorded ones: ``python -m benchmarks.traced_plans DIR [DIR ...]``.

A folder holds JSON files, each with a model's ``config``, ``flags``, card, release, and under ``plans`` what vLLM's
planner answered for some ``available_bytes``. Needs engines of those releases (``kvroom engine install``). The records
were made without FlashInfer, FlashMLA and Humming.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.tracing import engine_for
from kvroom.tracing.engines import Engine, kept_engines
from kvroom.tracing.question import Inquiry, Question
from kvroom.tracing.run import Answer, TraceFailed, ask
from kvroom.units import GIB


def recorded(folders: Sequence[Path]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The records that hold plans."""
    for folder in folders:
        for path in sorted(folder.glob("*.json")):
            record = json.loads(path.read_text("utf-8"))
            if record.get("plans"):
                yield path.stem, record


def question(record: dict[str, Any], folder: Path) -> Question:
    """What is asked of vLLM's code: the record's launch, and a pool for each of its plans."""
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(record["config"]), "utf-8")
    words = ["--model", str(folder), "-tp", str(record["tp"]), "-pp", str(record["pp"]), "--enforce-eager"]
    flags = {name: value for name, value in record["flags"].items() if name != "extra"}
    flags |= json.loads(record["flags"].get("extra") or "{}")
    if record.get("ep"):
        flags["enable_expert_parallel"] = True
    for name, value in flags.items():
        if value is None or value == {}:
            continue
        option = name.replace("_", "-")
        words += [f"--{option if value is not False else 'no-' + option}"]
        words += [str(value)] if not isinstance(value, bool) else []
    return Question(tuple(words), record["rank"], tuple(plan["available_bytes"] for plan in record["plans"]))


def differences(answer: Answer, record: dict[str, Any]) -> list[str]:
    """What is not as it was recorded."""
    found = []
    for pool, plan in zip(answer.pools, record["plans"], strict=True):
        where = f"{plan['available_bytes'] / GIB:.1f} GiB"
        if not plan["ok"]:
            found += [] if "error" in pool else [f"{where}: {pool['num_blocks']} blocks, recorded a refusal"]
        elif pool.get("num_blocks") != plan["num_blocks"]:
            found.append(f"{where}: {pool.get('num_blocks', pool.get('error', ''))!s:.90} != {plan['num_blocks']}")
    return found


def compared(records: Sequence[tuple[str, dict[str, Any]]], engines: Sequence[Engine]) -> Iterator[tuple[str, str]]:
    """The name of each record and what is wrong, empty where all is equal."""
    together: dict[tuple[Any, ...], list[tuple[str, dict[str, Any]]]] = defaultdict(list)
    for name, record in records:
        card = record["gpu"]["name"], record["capability"], record["gpu"]["total_gib"]
        together[record["vllm_version"], card].append((name, record))
    for (release, (card, capability, gib)), group in together.items():
        engine = engine_for(release, engines)
        if engine is None:
            yield from ((name, f"no engine of {release} is kept") for name, _ in group)
            continue
        with TemporaryDirectory(prefix="kvroom-plans-") as folder:
            described = {"name": card, "capability": [int(each) for each in capability.split(".")]}
            described |= {"total": int(gib * GIB), "used": 0}
            questions = tuple(question(record, Path(folder) / str(at)) for at, (_, record) in enumerate(group))
            inquiry = Inquiry(
                described, {"VLLM_USE_FLASHINFER_SAMPLER": "0"}, questions, ("flashinfer", "flashmla", "humming")
            )
            answers = ask(engine, inquiry, lambda _: None)
        for (name, record), answer in zip(group, answers, strict=True):
            if isinstance(answer, TraceFailed):
                yield name, f"{answer.step}: {answer.problem[:150]}"
            else:
                yield name, "; ".join(differences(answer, record))


def main() -> None:
    """Print what differs, and how many are equal."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folders", nargs="+", type=Path)
    records = list(recorded(parser.parse_args().folders))
    equal = 0
    for name, wrong in compared(records, kept_engines()):
        equal += not wrong
        if wrong:
            print(f"{name}: {wrong}", flush=True)
    print(f"{equal} of {len(records)} plans equal")


if __name__ == "__main__":
    main()
