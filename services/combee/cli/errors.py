"""Exit codes: 0 good, 1 failed or violated, 2 usage or settings, 3 some input was rejected."""

import typer

from combee.ports import ConfigurationError

FAILED, USAGE, REJECTED = 1, ConfigurationError.exit_code, 3


def told(message: str, code: int) -> typer.Exit:
    """Return the end of the program, after its reason has been told."""
    typer.echo(f"combee: {message}", err=True)
    return typer.Exit(code)
