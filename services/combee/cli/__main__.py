"""``combee``: the command line."""

from importlib import metadata
from typing import Annotated

import typer

from combee.cli import (
    broker,
    controller,
    cost,
    demo,
    dlq,
    doctor,
    experiment,
    learn,
    ledger,
    playbook,
    publish,
    replay,
    review,
    sim,
    status,
    top,
    topics,
    up,
    why,
    worker,
)
from combee.cli.errors import Verbs

app = typer.Typer(
    cls=Verbs,
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    help="Combee: agents learn from each other's runs, through playbooks kept on Apache Kafka.",
    epilog="Example: combee demo. Exit codes: 0 good, 1 failed or violated, 2 usage, 3 some input was rejected.",
)
for verb in (
    up,
    publish,
    learn,
    playbook,
    review,
    why,
    status,
    top,
    cost,
    replay,
    ledger,
    dlq,
    doctor,
    topics,
    worker,
    broker,
    demo,
    sim,
    experiment,
    controller,
):
    verb.register(app)


def _tell_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"combee {metadata.version('combee')}")
        raise typer.Exit


@app.callback()
def _combee(
    *,
    _version: Annotated[
        bool,
        typer.Option("--version", callback=_tell_version, is_eager=True, help="Say the version and exit."),
    ] = False,
) -> None:
    pass


def main() -> None:
    """Run the command line."""
    app()


if __name__ == "__main__":
    main()
