"""What vLLM's own code says beside what starts logged: ``python -m benchmarks.tracing [--corpus DIR] [--write]``.

Needs engines (``kvroom engine install``). The peaks of ``traced.json`` are always compared; with ``--corpus`` also the
launches of a corpus that came up: weights, activation peak and attention backend. A launch is traced by the kept
engine of its minor release; one that has none, or that cannot be traced, is listed with the reason. ``--write`` keeps
the figures in ``tracing.json``, from which ``docs/accuracy.md`` is made. ``--releases`` traces one model on every kept
release instead.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.launches import Launch, started
from benchmarks.series import series
from kvroom.errors import KvroomError
from kvroom.plans.plan import Plan
from kvroom.tracing.engines import Engine, kept_engines
from kvroom.tracing.exact import not_traced
from kvroom.tracing.question import Inquiry, inquiry_about
from kvroom.tracing.run import Answer, TraceFailed, ask
from kvroom.units import GIB
from kvroom.vllm.releases import Release, parse_release

ROWS = Path(__file__).with_name("traced.json")
KEPT = Path(__file__).with_name("tracing.json")
NEAR_GIB, NEAR_SHARE, WEIGHTS_SHARE = 0.1, 0.05, 0.005
_JUDGED = ("activation_near", "weights_near", "backend_equal")
_BACKENDS = {
    "Flash Attention": "FLASH_ATTN",
    "FlashAttention": "FLASH_ATTN",
    "FlashInfer": "FLASHINFER",
    "FlashMLA": "FLASHMLA",
    "Triton Attention": "TRITON_ATTN",
}
"""Names under which logs before 0.12 speak of a backend."""


@dataclass(frozen=True, slots=True)
class Compared:
    """One launch: what it logged and what was traced, sizes in GiB."""

    launch: Launch
    engine: str = ""
    problem: str = ""
    weights: float | None = None
    activation: float | None = None
    ruled: float | None = None
    """The activation peak that the rules say."""
    backends: tuple[str, ...] = ()
    seconds: float = 0.0

    @property
    def activation_near(self) -> bool | None:
        """Within 0.1 GiB or 5 % of what was logged; None where nothing was."""
        logged = self.launch.observed.get("activation_gib")
        if logged is None or self.activation is None:
            return None
        return bool(abs(self.activation - logged) <= max(NEAR_GIB, NEAR_SHARE * logged))

    @property
    def weights_near(self) -> bool | None:
        """Within 0.5 % of what was logged."""
        logged = self.launch.observed.get("weights_gib")
        if logged is None or self.weights is None:
            return None
        return bool(abs(self.weights - logged) <= max(WEIGHTS_SHARE * logged, 0.006))

    @property
    def backend_equal(self) -> bool | None:
        """Whether the backend that was logged is among the traced ones."""
        logged = (self.launch.backend or "").strip()
        logged = _BACKENDS.get(logged, logged.partition(" ")[0])
        if not logged.isupper() or not self.backends:
            return None
        return any(logged == name.removesuffix("_VLLM_V1") for name in self.backends)


def logged() -> Iterator[Launch]:
    """The launches of ``traced.json``."""
    for number, row in enumerate(json.loads(ROWS.read_text("utf-8"))["rows"]):
        words = (row["model"], *row["flags"])
        yield Launch(f"h100:{number}", words, {}, row["gpu"], row["release"], {"activation_gib": row["activation"]})


def without_repeats(launches: Iterable[Launch]) -> list[Launch]:
    """One of each launch that was started several times."""
    return list({(each.words, each.gpu, each.release, tuple(each.env.items())): each for each in launches}.values())


def engine_for(release: str, engines: Sequence[Engine]) -> Engine | None:
    """The engine of that minor release, the one next to it where several are kept."""
    asked = parse_release(release)
    same = [(parse_release(engine.version), engine) for engine in engines]
    same = [(found, engine) for found, engine in same if (found.major, found.minor) == (asked.major, asked.minor)]
    return min(same, key=lambda pair: _apart(pair[0], asked), default=(None, None))[1]


def _apart(one: Release, other: Release) -> int:
    return abs(one.patch - other.patch)


def compared(launches: Sequence[Launch], engines: Sequence[Engine]) -> Iterator[Compared]:
    """Each of ``launches`` with what its engine says; those of one engine, card and environment share a process."""
    together: dict[tuple[Any, ...], list[tuple[Launch, Plan]]] = defaultdict(list)
    for launch in launches:
        try:
            engine = engine_for(launch.release, engines)
            if engine is None:
                yield Compared(launch, problem="no engine of that release is kept")
                continue
            plan = replace(launch, release=engine.version.partition("+")[0]).plan()
        except KvroomError as error:
            yield Compared(launch, problem=error.problem)
            continue
        refused = not_traced(plan.prediction)
        if refused:
            yield Compared(launch, engine.version, refused)
            continue
        together[engine, plan.prediction.setup.machine.device.name, tuple(launch.env.items())].append((launch, plan))
    for (engine, *_), pairs in together.items():
        yield from _asked(engine, pairs)


def _asked(engine: Engine, pairs: Sequence[tuple[Launch, Plan]]) -> Iterator[Compared]:
    asked: list[tuple[Launch, Plan]] = []
    inquiries: list[Inquiry] = []
    with ExitStack() as stack:
        for launch, plan in pairs:
            try:
                inquiries.append(inquiry_about(plan.prediction.setup, plan.tokens, offline=True, stack=stack))
                asked.append((launch, plan))
            except KvroomError as error:
                yield Compared(launch, engine.version, error.problem)
        if not asked:
            return
        whole = replace(inquiries[0], questions=tuple(each for inquiry in inquiries for each in inquiry.questions))
        answers = ask(engine, whole, lambda _: None)
    for (launch, plan), answer in zip(asked, answers, strict=True):
        if isinstance(answer, TraceFailed):
            yield Compared(launch, engine.version, f"{answer.step}: {answer.problem}")
        else:
            yield _compared(launch, engine, plan, answer)


def _compared(launch: Launch, engine: Engine, plan: Plan, answer: Answer) -> Compared:
    ledger = plan.prediction.ledger
    return Compared(
        launch,
        engine.version,
        weights=answer.weights / GIB,
        activation=answer.activation / GIB,
        ruled=ledger.activation.expected / GIB if ledger else None,
        backends=tuple(answer.backends),
        seconds=answer.seconds,
    )


def summary(rows: Sequence[Compared]) -> dict[str, Any]:
    """Shares of 1 over the rows where there is something to compare."""
    figures: dict[str, Any] = {"rows": len(rows), "traced": sum(not row.problem for row in rows)}
    for name in _JUDGED:
        known = [value for row in rows if (value := getattr(row, name)) is not None]
        figures[name] = round(sum(known) / len(known), 3) if known else None
        figures[f"{name}_of"] = len(known)
    return figures


def as_data(row: Compared) -> dict[str, Any]:
    """A row as JSON."""
    observed = row.launch.observed
    return {
        "id": row.launch.id,
        "release": row.launch.release,
        "engine": row.engine,
        "gpu": row.launch.gpu,
        "words": list(row.launch.words),
        "weights": {"logged": observed.get("weights_gib"), "traced": row.weights},
        "activation": {"logged": observed.get("activation_gib"), "traced": row.activation, "rules": row.ruled},
        "backend": {"logged": row.launch.backend, "traced": list(row.backends)},
        "seconds": row.seconds,
        "problem": row.problem,
    }


def model_of(row: Compared) -> str:
    """The model of a launch, the last part of its name."""
    words = row.launch.words
    named = words[words.index("--model") + 1] if "--model" in words else words[0]
    return named.rpartition("/")[2]


def far(row: Compared) -> list[str]:
    """What of a row is not as it was logged."""
    return [name.partition("_")[0] for name in _JUDGED if getattr(row, name) is False]


def line(row: Compared) -> str:
    """A row as text."""
    head = f"{row.launch.id:10} {row.launch.release[:10]:10} {model_of(row)[:44]:44}"
    if row.problem:
        return f"{head} {row.problem[:120]}"
    sizes = (row.launch.observed.get("weights_gib"), row.weights, row.launch.observed.get("activation_gib"))
    shown = " ".join(f"{size:8.3f}" if size is not None else "       -" for size in (*sizes, row.activation, row.ruled))
    return f"{head} {shown}  {','.join(row.backends)}  {' '.join(f'{name} is far' for name in far(row))}"


def write(rows: Sequence[Compared], path: Path = KEPT) -> None:
    """Keep the figures of the rows that were traced, one line each."""
    reasons = json.loads(ROWS.read_text("utf-8"))["reasons"]
    lines = [json.dumps(_kept(row, reasons)) for row in rows if not row.problem]
    about = "Written by python -m benchmarks.tracing --corpus DIR --write. Sizes in GiB per GPU."
    inner = ",\n  ".join(lines)
    text = (
        f'{{\n "about": {json.dumps(about)},\n "summary": {json.dumps(summary(rows))},\n "rows": [\n  {inner}\n ]\n}}\n'
    )
    path.write_text(text, "utf-8")


def _kept(row: Compared, reasons: Mapping[str, str]) -> dict[str, Any]:
    data = as_data(row)
    logged = {name: data[name]["logged"] for name in ("weights", "activation")}
    traced = {name: round(data[name]["traced"], 3) for name in ("weights", "activation")}
    kept = {"id": row.launch.id, "release": row.engine.partition("+")[0], "gpu": row.launch.gpu, "model": model_of(row)}
    kept |= {"logged": logged, "traced": traced, "backends": list(row.backends), "far": far(row)}
    return kept | ({"reason": reasons.get(row.launch.id, "")} if far(row) else {})


def releases(model: str, engines: Sequence[Engine]) -> Iterator[Compared]:
    """``model`` on an H100, traced by every engine."""
    launches = [Launch(engine.version, (model,), {}, "H100", engine.version.partition("+")[0]) for engine in engines]
    for launch, engine in zip(launches, engines, strict=True):
        yield from compared([launch], [engine])


def main() -> None:
    """Print the table, or with ``--json`` the rows."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--corpus", type=Path, help="a folder with started/ and started-series.csv")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--write", action="store_true", help=f"keep the figures in {KEPT.name}")
    parser.add_argument("--releases", metavar="MODEL", help="trace this model on every kept release")
    asked = parser.parse_args()
    if asked.write and (asked.releases or not asked.corpus):
        parser.error("--write keeps all rows: give --corpus, and leave --releases out")
    if asked.releases:
        rows = list(releases(asked.releases, kept_engines()))
    else:
        launches = list(logged())
        if asked.corpus:
            launches += [*started(asked.corpus), *without_repeats(series(asked.corpus))]
        rows = sorted(compared(launches, kept_engines()), key=lambda row: row.launch.id)
    if asked.write:
        write(rows)
    if asked.json:
        print(json.dumps({"summary": summary(rows), "rows": [as_data(row) for row in rows]}, indent=1))
        return
    sizes = "weights logged, traced; activation logged, traced, by the rules (GiB)"
    print(f"{'id':10} {'release':10} {'model':44} {sizes}")
    print("\n".join(line(row) for row in rows))
    print("\n".join(f"{name:20} {value}" for name, value in summary(rows).items()))


if __name__ == "__main__":
    main()
