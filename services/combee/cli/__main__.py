"""``combee``: the command line."""

import gc
from typing import Annotated

from combee.assembly.local import extras

try:
    import typer

    from combee.cli.verbs import Verbs
except ModuleNotFoundError as error:  # 'pip install combee' without extras installs the SDK and this script
    raise extras.end(error) from None

app = typer.Typer(
    cls=Verbs,
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    help="Combee: agents learn from each other's runs, through playbooks kept on Apache Kafka.",
    epilog="Example: combee demo. Exit codes: 0 good, 1 failed or violated, 2 usage, 3 some input was rejected.",
)


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib import metadata  # noqa: PLC0415 - only --version needs it

        typer.echo(f"combee {metadata.version('combee')}")
        raise typer.Exit


@app.callback()
def _combee(
    *,
    _version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit."),
    ] = False,
) -> None:
    pass


def main() -> None:
    """Run the command line without garbage collection of its imports, which took a third of a start."""
    gc.disable()  # until a verb is there, see ``verbs``
    try:
        app()
    finally:
        gc.freeze()  # the process ends: its last collection would free nothing that matters


if __name__ == "__main__":
    main()
