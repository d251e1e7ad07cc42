"""The verbs, each imported when it is asked for: most calls need one of them only."""

import gc
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module
from typing import Any, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_group

from combee.assembly.local import extras
from combee.cli.shared.console import FAILED, USAGE, failure
from combee_schemas.errors import CombeeError, ConfigurationError


class Verb(NamedTuple):
    """Where a verb stands, and what the list of verbs says of it."""

    module: str
    summary: str


VERBS = {
    "up": Verb(
        "combee.cli.up",
        "Run the broker (unless one is configured), all services and the gateway; restart what ends; one log.",
    ),
    "publish": Verb(
        "combee.cli.publish",
        "Publish lines and end once all are acknowledged; the same line twice counts once ('combee learn' waits).",
    ),
    "learn": Verb(
        "combee.cli.learn.verb",
        "Learn from a file or folder: publish what is new, wait until all of it is applied, print the playbook.",
    ),
    "playbook": Verb(
        "combee.cli.playbook.group",
        "Playbooks: read, compare, export, import, edit, label, undo.",
    ),
    "sync": Verb(
        "combee.cli.sync",
        "Keep a region of AGENTS.md, SKILL.md, CLAUDE.md or a Cursor rule equal to a playbook; the rest stays.",
    ),
    "mcp": Verb(
        "combee.cli.mcp",
        "Serve playbooks to coding assistants by the Model Context Protocol, on stdio or HTTP.",
    ),
    "branch": Verb(
        "combee.cli.branch",
        "Fork NAME@BRANCH, which learns from NAME's reflections in its own way; without --as list branches.",
    ),
    "adopt": Verb(
        "combee.cli.adopt",
        "Make what a branch says its playbook's next version; the branch stays and learns on.",
    ),
    "review": Verb(
        "combee.cli.review",
        "Show what a version says otherwise than a label does, and move the label there if you agree.",
    ),
    "evaluate": Verb(
        "combee.cli.evaluate",
        "Answer held-out questions with a version and score the answers; what was asked is not paid for again.",
    ),
    "bisect": Verb(
        "combee.cli.bisect",
        "Name the version with which held-out questions are answered worse, and what made it; exit 1 if none is.",
    ),
    "why": Verb(
        "combee.cli.why",
        "Tell where an entry comes from: its versions, the reflections it rests on, the runs behind them.",
    ),
    "status": Verb(
        "combee.cli.status",
        "Show topics, the backlog of every service, and all playbooks.",
    ),
    "top": Verb(
        "combee.cli.top.verb",
        "Show lags, windows, the running batch's tree, batch sizes and why, retention, cost, versions; q ends it.",
    ),
    "cost": Verb(
        "combee.cli.cost",
        "Sum up the model calls behind every version; money at the prices that held when it was spent.",
    ),
    "tenant": Verb(
        "combee.cli.tenant",
        "Tenants, name spaces of playbooks: delete one.",
    ),
    "replay": Verb(
        "combee.cli.replay.verb",
        "Give a copy the same input; exit 1 if it is planned otherwise, or says otherwise on the same answers.",
    ),
    "archive": Verb(
        "combee.cli.archive",
        "Write a playbook, or all of a prefix, to one file: a state that all services can go on from; they may run.",
    ),
    "restore": Verb(
        "combee.cli.restore",
        "Read an archive back into an empty prefix; run again after a kill, it goes on. Services start afterwards.",
    ),
    "forget": Verb(
        "combee.cli.forget",
        "Erase what names a person, or runs and what they alone taught; what is left goes to a new prefix.",
    ),
    "ledger": Verb(
        "combee.cli.ledger",
        "Account for all reflections and retained traces; exit 1 if one is lost, counts twice or a rule is broken.",
    ),
    "dlq": Verb(
        "combee.cli.dlq.group",
        "Dead letters: list, show, retry, drop.",
    ),
    "doctor": Verb(
        "combee.cli.doctor.verb",
        "Check settings, broker, topics, clock, disk, model, lag, dead letters and batches; each with a remedy.",
    ),
    "topics": Verb(
        "combee.cli.topics",
        "The topics: create, check, show, rights.",
    ),
    "worker": Verb(
        "combee.cli.worker",
        "Run one service until SIGTERM or Ctrl-C; it drains before it exits.",
    ),
    "broker": Verb(
        "combee.cli.broker",
        "The embedded broker: real Apache Kafka from its jars, on loopback.",
    ),
    "demo": Verb(
        "combee.cli.demo.verb",
        "Start a throw-away Kafka, all services and a simulated fleet; watch it learn; prove nothing was lost.",
    ),
    "sim": Verb(
        "combee.cli.sim",
        "The stand-in model: a simulation for trying Combee without an API key.",
    ),
    "experiment": Verb(
        "combee.cli.experiment",
        "Re-run one of the paper's experiments; what was measured already is not measured again.",
    ),
    "controller": Verb(
        "combee.cli.controller",
        "Show which batch size the controller has chosen for a playbook, and what it rests on.",
    ),
}
"""What may be asked for; the list is shown without importing any of them."""


@cache
def _command(name: str) -> Any:
    """Return a verb; making its options is slow, and one call of the command line asks several times."""
    app = typer.Typer()
    import_module(VERBS[name].module).register(app)
    if not gc.isenabled():  # ``main`` stopped it; in a test's process it is not ours to touch
        gc.freeze()
        gc.enable()
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

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002 - the group's own signature
        """Return the names of the verbs."""
        return list(VERBS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ARG002 - the group's own signature
        """Return what the list of verbs and completion need to know of a verb: its summary."""
        return TyperCommand(cmd_name, help=VERBS[cmd_name].summary) if cmd_name in VERBS else None

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the verb that is called, whole."""
        name, summary, rest = super().resolve_command(ctx, args)
        return name, summary and self.commands[str(summary.name)], rest

    def invoke(self, ctx: Any) -> Any:
        """Run the verb."""
        try:
            return super().invoke(ctx)
        except ConfigurationError as error:
            raise failure(str(error), USAGE) from error
        except ModuleNotFoundError as error:
            if (text := extras.install_hint(error)) is None:
                raise
            raise failure(text, USAGE) from error
        except CombeeError as error:
            raise failure(str(error), FAILED) from error
        except TimeoutError as error:
            text = "nothing answered in time; see 'combee status' for what runs"
            raise failure(str(error) or text, FAILED) from error
