"""The command: ``python -m benchmarks.peers --corpus DIR [--json | --write] [--peer NAME ...] [--envs DIR]``."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks import accuracy
from benchmarks.launches import Launch
from benchmarks.peers import page
from benchmarks.peers.asking import Answers, ask
from benchmarks.peers.environments import NotInstallable, Peer, child_environment, default_folder, peers, python_of
from benchmarks.peers.hub import serving
from benchmarks.peers.questions import Asked, asked, put_down
from benchmarks.peers.scores import counted, figures, scored

_ABOUT = "Written by python -m benchmarks.peers --corpus DIR --write. rows: weights and pool in GiB per GPU, fits."


def questions(corpus: Path, rows: Sequence[Mapping[str, Any]]) -> dict[str, Asked]:
    """The launches of the scoreboard's ``rows`` as peers are asked about them, by id."""
    wanted = {row["id"] for row in rows}
    found = {}
    for launch in accuracy.asked(corpus, with_series=False):
        if isinstance(launch, Launch) and launch.id in wanted:
            put = asked(launch, launch.plan().prediction)
            if put is not None:
                found[launch.id] = put
    return found


def answers_of(peer: Peer, python: Path, put: Mapping[str, Asked]) -> Answers:
    """What ``peer`` says of every launch."""
    with TemporaryDirectory(prefix="kvroom-peers-") as name:
        folder = Path(name)
        home = folder / "home"
        home.mkdir()
        with serving({each.facts["model"]: each.model for each in put.values()}) as hub:
            asking = [put_down(each, folder / "models", hub) for each in put.values()]
            return ask(python, peer.adapter, asking, child_environment(hub, home), home)


def compared(corpus: Path, chosen: Sequence[Peer], envs: Path) -> dict[str, Any]:
    """All planners on the launches that ``benchmarks.accuracy`` scores."""
    board = accuracy.run(corpus)
    rows = accuracy.scored(board["rows"])
    put = questions(corpus, rows)
    left_out, _ = accuracy.left_out(board["rows"])
    found: dict[str, Any] = {
        "about": _ABOUT,
        "asked": {
            "launches": len(rows),
            **counted(rows),
            "starts": sum(row["verdict"]["observed"] == "starts" for row in rows),
        },
        "kvroom": {"kvroom": figures(rows), "kvroom, constants refitted without the launch's group": figures(left_out)},
        "peers": {},
    }
    for peer in chosen:
        print(f"asking {peer.name}", file=sys.stderr, flush=True)
        try:
            answers = answers_of(peer, python_of(peer, envs), put)
        except NotInstallable as problem:
            found["peers"][peer.name] = {"version": peer.version, "not_installable": str(problem)}
            continue
        found["peers"][peer.name] = {"version": peer.version, **scored(rows, answers)}
    return found


def written(found: Mapping[str, Any]) -> str:
    """The figures as they are kept: one answer a line."""
    data = json.loads(json.dumps(found))
    answers = {name: figures.pop("rows", None) for name, figures in data["peers"].items()}
    data["rows"] = "ROWS"
    lines = []
    for name, rows in answers.items():
        if rows is not None:
            inner = ",\n".join(f"   {json.dumps(key)}: {json.dumps(row)}" for key, row in rows.items())
            lines.append(f"  {json.dumps(name)}: {{\n{inner}\n  }}")
    body = ",\n".join(lines)
    return json.dumps(data, indent=1).replace('"ROWS"', f"{{\n{body}\n }}") + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table of all planners."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers", description="Score other planners on a corpus.")
    parser.add_argument("--corpus", type=Path, required=True, metavar="DIR", help="holds started/ and failing/")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--write", action="store_true", help=f"keep the figures in {page.KEPT.name}")
    parser.add_argument("--peer", action="append", default=[], metavar="NAME", help="only this one; may be repeated")
    parser.add_argument("--envs", type=Path, default=None, metavar="DIR", help="where environments are kept")
    options = parser.parse_args(arguments)
    if not (options.corpus / "started").is_dir():
        parser.error(f"{options.corpus} has no folder started/")
    if options.write and options.peer:
        parser.error("--write keeps all peers; leave --peer out")
    try:
        chosen = peers(options.peer)
    except KeyError as unknown:
        parser.error(f"no peer is called {unknown}; known: {', '.join(peer.name for peer in peers())}")
    found = compared(options.corpus, chosen, options.envs or default_folder())
    listed = json.loads(page.LIST.read_text("utf-8"))["peers"]
    print(json.dumps(found, indent=1) if options.json else page.text(found, listed))
    if options.write:
        page.KEPT.write_text(written(found), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
