"""Pack model descriptions into kvroom's catalogue: one compact JSON file a model, and an index.

    python scripts/pack_catalogue.py DIRECTORY

DIRECTORY holds one JSON file a model, ``ORG--NAME.json``, with ``config`` (the config.json), ``source``
(where it was copied from), ``grade`` and, where known, ``hf_quant_config``, ``total_params``,
``published_size``. Long lists of module names are folded: ``layers.[0-59].mlp`` stands for sixty names
(``kvroom.models.catalogue.unfold`` writes them out again).
"""

from __future__ import annotations

import json
import re
import sys
from collections import defaultdict
from pathlib import Path

KEEP = ("source", "grade", "total_params", "published_size", "config", "hf_quant_config")
TARGET = Path(__file__).parents[1] / "src" / "kvroom" / "data" / "models" / "catalogue"
FOLD_FROM = 24


def ranges(numbers: list[int]) -> str:
    """``[0-2,5]`` for 0, 1, 2, 5."""
    runs: list[list[int]] = []
    for each in sorted(set(numbers)):
        if runs and each == runs[-1][1] + 1:
            runs[-1][1] = each
        else:
            runs.append([each, each])
    return "[" + ",".join(f"{a}-{b}" if a < b else str(a) for a, b in runs) + "]"


def fold(names: list[str]) -> list[str]:
    """``names`` with numbers that run gathered, the last number of a name first."""
    depth = max((len(re.findall(r"(?<![\w\[,-])\d+(?![\w\],-])", name)) for name in names), default=0)
    for back in range(1, depth + 1):
        groups: dict[tuple[str, str], list[int]] = defaultdict(list)
        rest: list[str] = []
        for name in names:
            found = list(re.finditer(r"(?<![\w\[,-])\d+(?![\w\],-])", name))
            if not found:
                rest.append(name)
                continue
            last = found[-1]
            groups[name[: last.start()], name[last.end() :]].append(int(last.group()))
        names = rest + [
            f"{before}{ranges(numbers)}{after}" if len(set(numbers)) > 1 else f"{before}{numbers[0]}{after}"
            for (before, after), numbers in groups.items()
        ]
        if back < depth and not any(re.search(r"(?<![\w\[,-])\d+(?![\w\],-])", name) for name in names):
            break
    return sorted(names)


def are_modules(names: list[object]) -> bool:
    """Whether ``names`` is a long list of module paths, in which order means nothing."""
    texts = [each for each in names if isinstance(each, str) and "[" not in each]
    return len(texts) == len(names) >= FOLD_FROM and sum("." in each for each in texts) > len(texts) // 2


def compact(value: object) -> object:
    """``value`` with long lists and tables of module paths folded."""
    if isinstance(value, list):
        return fold(value) if are_modules(value) else [compact(each) for each in value]
    if isinstance(value, dict):
        if are_modules(list(value)):
            same: dict[str, list[str]] = defaultdict(list)
            for key, each in value.items():
                same[json.dumps(each, sort_keys=True)].append(key)
            return {name: json.loads(text) for text, names in same.items() for name in fold(names)}
        return {key: compact(each) for key, each in value.items()}
    return value


def main(directory: Path) -> None:
    """Put the models of ``directory`` in the catalogue, beside those that are there."""
    TARGET.mkdir(parents=True, exist_ok=True)
    for path in sorted(directory.glob("*--*.json")):
        entry = json.loads(path.read_text("utf-8"))
        packed = {key: compact(entry[key]) for key in KEEP if entry.get(key) is not None}
        (TARGET / path.name).write_text(json.dumps(packed, separators=(",", ":"), sort_keys=True) + "\n", "utf-8")
    index = {path.stem.replace("--", "/", 1): path.name for path in sorted(TARGET.glob("*--*.json"))}
    (TARGET / "index.json").write_text(json.dumps(index, indent=0) + "\n", "utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
