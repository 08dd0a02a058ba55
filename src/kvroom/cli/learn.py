"""``kvroom learn`` and ``kvroom learned``: keep what logs measured, and look at what is kept."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from kvroom.cli.options import variables
from kvroom.cli.output import show, write, write_file, write_json
from kvroom.errors import UsageError, short

if TYPE_CHECKING:
    from kvroom.learned.measurement import Measurement

_LARGEST = 50_000_000
"""Bytes of a file to import."""


@click.command()
@click.argument("logs", nargs=-1, metavar="[LOG]...")
@click.option("--command", help="The launch command of the log, for what the log does not show.")
@click.option("--model", help="The model, where the log does not name it or names a private path.")
@click.option("--gpu", help="The card, e.g. 'RTX 4090' or '2x H100'; logs seldom name it.")
@click.option("--gpu-memory", help="Total memory of one card, where it differs, e.g. 23.6GiB.")
@click.option("--vllm", help="The release, where the log does not say it.")
@click.option("--env", multiple=True, help="An environment variable of the launch, NAME=VALUE.")
@click.option("--offline", is_flag=True, help="Read nothing from the hub.")
@click.option("--all", "every", is_flag=True, help="Every start in the log, not only the last.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON (schema kvroom/1).")
def learn(logs: tuple[str, ...], *, env: tuple[str, ...], every: bool, as_json: bool, **said: str | bool | None) -> int:
    """Keep what a log (a file, or `-` for standard input) measured, so that later plans on that machine are exact.

    The start must have come up, or reached the check of the KV cache. Nothing private is kept: sizes, the card,
    the release, the model, the flags that move memory. A file may also be the ledger that the plugin in vLLM wrote
    where KVROOM_LEDGER said.
    Exit code: 0 learned, 1 a log holds nothing to learn, 2 wrong usage.
    """
    from datetime import UTC, datetime
    from pathlib import Path

    from kvroom.cli.inputs import diagnoses_of
    from kvroom.doctor.learn import lesson, written
    from kvroom.learned.store import Store, store_path
    from kvroom.report.learned import lessons_data, print_lessons

    now, store = datetime.now(UTC), Store(store_path())
    ledgers = {name: told for name in logs if name not in {"", "-"} and (told := written(Path(name))) is not None}
    rest = [name for name in logs if name not in ledgers]
    found = diagnoses_of(rest, said, variables(env), every=every, follow=False) if rest or not logs else []
    lessons = [*ledgers.items(), *((each.source, lesson(each, now)) for each in found)]
    taught = [each for _, each in lessons if not isinstance(each, str)]
    new = store.add(taught) if taught else 0
    if as_json:
        write_json(lessons_data(lessons, new, str(store.path)))
    else:
        show(lambda console: print_lessons(lessons, console))
    return 0 if len(taught) == len(lessons) else 1


@click.command()
@click.option("--export", "export_to", metavar="FILE", help="Write what is kept to a file, for another machine.")
@click.option("--import", "import_from", metavar="FILE", help="Add what such a file holds; `-` is standard input.")
@click.option(
    "--forget",
    multiple=True,
    is_flag=False,
    flag_value="",
    metavar="ID|--all",
    help="Drop one, the beginning of its id is enough; with --all everything.",
)
@click.option("--all", "everything", is_flag=True, help="What --forget drops: everything.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON (schema kvroom/1).")
def learned(
    *,
    export_to: str | None,
    import_from: str | None,
    forget: tuple[str, ...],
    everything: bool,
    as_json: bool,
) -> None:
    """List what was learned from logs; export, import or forget it.

    It lies in the user's data folder, or in the file that KVROOM_LEARNED names.
    """
    from kvroom.learned.store import Store, store_path
    from kvroom.report.learned import learned_data, print_learned

    if sum((export_to is not None, import_from is not None, bool(forget))) > 1:
        raise click.UsageError("--export, --import and --forget are separate wishes.")
    if everything != (bool(forget) and not any(forget)):
        raise click.UsageError("Say what to forget: --forget ID, or --forget --all.")
    store = Store(store_path())
    if forget:
        number = store.forget_all() if everything else store.forget(forget)
        write(f"forgot {number}\n")
        return
    if import_from is not None:
        given = _read_export(import_from)
        write(f"{store.add(given)} new of {len(given)}, kept in {store.path}\n")
        return
    kept = store.every()
    if export_to is not None:
        import json

        write_file(export_to, json.dumps(learned_data(kept), indent=1) + "\n", not_over=[str(store.path)])
        write(f"{len(kept)} written to {export_to}\n")
    elif as_json:
        write_json(learned_data(kept, str(store.path)))
    else:
        show(lambda console: print_learned(kept, str(store.path), console))


def _read_export(name: str) -> list[Measurement]:
    """The measurements in the file ``name``; UsageError where it cannot be read as such."""
    import sys
    from pathlib import Path

    from kvroom.files import read_limited, reason, too_large
    from kvroom.learned.exchange import imported

    shown = "The standard input" if name == "-" else short(name)
    try:
        if name == "-":
            data = sys.stdin.buffer.read(_LARGEST + 1)
            if len(data) > _LARGEST:
                raise too_large(_LARGEST)
        else:
            data = read_limited(Path(name), _LARGEST)
    except (OSError, ValueError) as error:
        raise UsageError(
            f"{shown} cannot be read: {reason(error)}.", "Give what `kvroom learned --export` wrote."
        ) from None
    return imported(data, shown)
