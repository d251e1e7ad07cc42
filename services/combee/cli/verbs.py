"""The verbs, each imported when it is asked for: most calls need one of them only."""

from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperGroup
from typer.main import get_group

from combee.cli.console import FAILED, USAGE, failure
from combee.local import extras
from combee.ports import CombeeError, ConfigurationError

VERBS = {
    "up": "combee.cli.up",
    "publish": "combee.cli.publish",
    "learn": "combee.cli.learn.verb",
    "playbook": "combee.cli.playbook.group",
    "review": "combee.cli.review",
    "why": "combee.cli.why",
    "status": "combee.cli.status",
    "top": "combee.cli.top.verb",
    "cost": "combee.cli.cost",
    "replay": "combee.cli.replay.verb",
    "ledger": "combee.cli.ledger",
    "dlq": "combee.cli.dlq.group",
    "doctor": "combee.cli.doctor.verb",
    "topics": "combee.cli.topics",
    "worker": "combee.cli.worker",
    "broker": "combee.cli.broker",
    "demo": "combee.cli.demo.verb",
    "sim": "combee.cli.sim",
    "experiment": "combee.cli.experiment",
    "controller": "combee.cli.controller",
}
"""Verb → the module that registers it."""


@cache
def _command(name: str) -> Any:
    """Return a verb; making its options is slow, and one call of the command line asks several times."""
    app = typer.Typer()
    import_module(VERBS[name]).register(app)
    return get_group(app).commands[name]


class OnDemand(Mapping[str, Any]):
    """Commands by name, made when they are looked up."""

    def __getitem__(self, name: str) -> Any:
        """Return one command.

        Raises
        ------
        KeyError
            If there is no such verb.
        """
        if name not in VERBS:
            raise KeyError(name)
        return _command(name)

    def __iter__(self) -> Iterator[str]:
        """Yield the names."""
        return iter(VERBS)

    def __len__(self) -> int:
        """Return how many there are."""
        return len(VERBS)


class Verbs(TyperGroup):
    """The verbs; an error that Combee raises on purpose is one message and no traceback."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings | {"commands": OnDemand()})

    def invoke(self, ctx: Any) -> Any:
        """Run the verb."""
        try:
            return super().invoke(ctx)
        except ConfigurationError as error:
            raise failure(str(error), USAGE) from error
        except ModuleNotFoundError as error:
            if (text := extras.told(error)) is None:
                raise
            raise failure(text, USAGE) from error
        except CombeeError as error:
            raise failure(str(error), FAILED) from error
        except TimeoutError as error:
            text = "nothing answered in time; see 'combee status' for what runs"
            raise failure(str(error) or text, FAILED) from error
