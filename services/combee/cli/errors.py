"""Exit codes: 0 good, 1 failed or violated, 2 usage or settings, 3 some input was rejected."""

from typing import Any

import typer
from typer.core import TyperGroup

FAILED, USAGE, REJECTED = 1, 2, 3


class Verbs(TyperGroup):
    """The verbs; an error that Combee raises on purpose is one message and no traceback."""

    def invoke(self, ctx: Any) -> Any:
        """Run the verb."""
        from combee.ports import CombeeError  # noqa: PLC0415 - --help stays quick
        from combee.runtime.group import SettingsError  # noqa: PLC0415

        try:
            return super().invoke(ctx)
        except SettingsError as error:
            raise _told(str(error), USAGE) from error
        except CombeeError as error:
            raise _told(str(error), FAILED) from error
        except TimeoutError as error:
            text = "nothing answered in time; see 'combee status' for what runs"
            raise _told(str(error) or text, FAILED) from error


def _told(message: str, code: int) -> typer.Exit:
    typer.echo(f"combee: {message}", err=True)
    return typer.Exit(code)
