"""``combee``: the command line."""

import sys

import typer

from combee.cli import broker, demo, learn, sim, up, worker
from combee.ports import CombeeError

app = typer.Typer(no_args_is_help=True, add_completion=True, pretty_exceptions_enable=False)
for verb in (up, learn, demo, worker, broker, sim):
    verb.register(app)


def main() -> None:
    """Run; a CombeeError is one line on standard error and exit code 1."""
    try:
        app()
    except CombeeError as error:
        typer.echo(f"combee: {error}", err=True)
        sys.exit(1)


if __name__ == "__main__":
    main()
