"""``kvroom engine``: the environments in which vLLM's own Python code runs without a GPU."""

from __future__ import annotations

import click

from kvroom.cli.output import write, write_json


@click.group()
def engine() -> None:
    """Keep vLLM's Python code, release by release, to run it without a GPU (for `kvroom dry-run`).

    All releases share one environment with torch's CPU build (about 3.4 GB); each adds 25 to 200 MB.
    They lie in the user's cache folder, or in KVROOM_ENGINES.
    """


@engine.command()
@click.argument("version")
@click.option("--torch-index", metavar="URL", help="The index for torch alone, such as PyTorch's own for CPU builds.")
@click.option(
    "--with-transformers",
    "transformers",
    default="auto",
    show_default=True,
    metavar="auto|base|VERSION",
    help="Which transformers it runs with. auto: the shared one, or an older one where the release knew no newer.",
)
def install(version: str, *, torch_index: str | None, transformers: str) -> None:
    """Fetch the Python code of one vLLM release, as in `kvroom engine install 0.28.0`.

    The first one makes the shared environment, with the Python that runs kvroom and pip's own settings.
    """
    from kvroom.cli.progress import Steps, ends_on_terminate
    from kvroom.tracing.install import Wishes, steps_to_come
    from kvroom.tracing.install import install as build
    from kvroom.tracing.keep import Keep, engines_folder
    from kvroom.tracing.pip import RealTools
    from kvroom.units import show_bytes

    keep = Keep(engines_folder())
    wishes = Wishes(version, torch_index, transformers)
    with ends_on_terminate(), Steps(steps_to_come(keep)) as said:
        kept, new = build(wishes, keep, RealTools(), said)
    what = "installed" if new else "was here already"
    own = f", transformers {kept.transformers}" if kept.transformers else ""
    write(f"vLLM {kept.version} {what}: Python {kept.python}{own}, {show_bytes(kept.size)} in {kept.folder}\n")


@engine.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print JSON (schema kvroom/1).")
def show(*, as_json: bool) -> None:
    """Show the engines that are kept, and whether they work."""
    from kvroom.cli.engine_list import engines_data, print_engines
    from kvroom.tracing.engines import checked
    from kvroom.tracing.keep import Keep, engines_folder

    keep = Keep(engines_folder())
    every = [checked(kept) for kept in keep.kept()]
    if as_json:
        write_json(engines_data(keep, every))
    else:
        print_engines(keep, every)


@engine.command()
@click.argument("versions", nargs=-1, metavar="VERSION...")
@click.option("--all", "everything", is_flag=True, help="Remove every engine, and the shared environment.")
def remove(versions: tuple[str, ...], *, everything: bool) -> None:
    """Remove engines; the environment that they share stays unless --all is given."""
    if bool(versions) == everything:
        raise click.UsageError("Give a version (kvroom engine list shows them), or --all.")
    from kvroom.cli.progress import Steps
    from kvroom.tracing.install import remove as take_away
    from kvroom.tracing.keep import Keep, engines_folder
    from kvroom.units import show_bytes

    with Steps(0) as said:
        gone = take_away(None if everything else list(versions), Keep(engines_folder()), said)
    write("".join(f"removed {name}, {show_bytes(size)}\n" for name, size in gone) or "nothing is kept here\n")
