"""The verbs, each imported on demand: most calls need only one."""

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
    """A verb's module and its line in the list of verbs."""

    module: str
    summary: str


VERBS = {
    "up": Verb(
        "combee.cli.up",
        "Run the broker (unless one is configured), all services and the gateway, with restarts and one log.",
    ),
    "publish": Verb(
        "combee.cli.publish",
        "Publish lines and end once all are acknowledged; the same line twice counts once ('combee learn' waits).",
    ),
    "learn": Verb(
        "combee.cli.learn.verb",
        "Learn from a file or folder: publish new runs, wait until all are applied, print the playbook.",
    ),
    "playbook": Verb(
        "combee.cli.playbook.group",
        "Playbooks: read, compare, export, import, edit, label, undo.",
    ),
    "sync": Verb(
        "combee.cli.sync",
        "Keep a region of AGENTS.md, SKILL.md, CLAUDE.md or a Cursor rule equal to a playbook, the rest unchanged.",
    ),
    "mcp": Verb(
        "combee.cli.mcp",
        "Serve playbooks to coding assistants over the Model Context Protocol, on stdio or HTTP.",
    ),
    "branch": Verb(
        "combee.cli.branch",
        "Fork NAME@BRANCH, which learns from NAME's reflections with its own settings; without --as list branches.",
    ),
    "adopt": Verb(
        "combee.cli.adopt",
        "Publish a branch's entries as the playbook's next version; the branch stays and keeps learning.",
    ),
    "review": Verb(
        "combee.cli.review",
        "Compare a candidate with what agents read now; approve or reject it.",
    ),
    "evaluate": Verb(
        "combee.cli.evaluate",
        "Answer held-out questions with a version and score the answers; stored answers are not paid for again.",
    ),
    "bisect": Verb(
        "combee.cli.bisect",
        "Find the version that lowered accuracy on held-out questions, and its batch; exit 1 if there is none.",
    ),
    "why": Verb(
        "combee.cli.why",
        "Show where an entry comes from: its versions, the reflections behind it, and their runs.",
    ),
    "status": Verb(
        "combee.cli.status",
        "Show topics, the backlog of every service, and all playbooks.",
    ),
    "top": Verb(
        "combee.cli.top.verb",
        "Show lags, windows, the running batch's tree, batch sizes and reasons, retention, cost, versions; q quits.",
    ),
    "cost": Verb(
        "combee.cli.cost",
        "Sum up the model calls behind every version; money is counted at the prices of the time of each call.",
    ),
    "key": Verb(
        "combee.cli.key",
        "Make a gateway key, or a source's secret, and print the two lines that an agent needs.",
    ),
    "tenant": Verb(
        "combee.cli.tenant",
        "Tenants (name spaces of playbooks): delete one.",
    ),
    "replay": Verb(
        "combee.cli.replay.verb",
        "Re-run learning from the log, with the same or changed settings, and compare the results.",
    ),
    "archive": Verb(
        "combee.cli.archive",
        "Write a playbook, or all of a prefix, to one file for 'combee restore'; services may keep running.",
    ),
    "restore": Verb(
        "combee.cli.restore",
        "Read an archive back into an empty prefix; a repeat resumes an interrupted run. Start services afterwards.",
    ),
    "forget": Verb(
        "combee.cli.forget",
        "Erase a person's data, or runs and what only they taught; the remaining records move to a new prefix.",
    ),
    "ledger": Verb(
        "combee.cli.ledger",
        "Account for all reflections and retained traces; exit 1 if one is lost or counted twice or a rule fails.",
    ),
    "dlq": Verb(
        "combee.cli.dlq.group",
        "Dead letters: list, show, retry, drop.",
    ),
    "doctor": Verb(
        "combee.cli.doctor.verb",
        "Check settings, broker, topics, clock, disk, model, lag, dead letters and batches, and name remedies.",
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
        "Start a temporary Kafka, all services and simulated agents; show how they learn; prove nothing was lost.",
    ),
    "sim": Verb(
        "combee.cli.sim",
        "The stand-in model: a simulation for trying Combee without an API key.",
    ),
    "experiment": Verb(
        "combee.cli.experiment",
        "Re-run one of the paper's experiments; finished measurements are not repeated.",
    ),
    "controller": Verb(
        "combee.cli.controller",
        "Show the batch size that the controller chose for a playbook, and the delays behind it.",
    ),
}
"""All verbs by name; the list is shown without importing any of them."""


@cache
def _command(name: str) -> Any:
    """Return a verb, cached: making its options is slow, and one command line looks it up several times."""
    app = typer.Typer()
    import_module(VERBS[name].module).register(app)
    if not gc.isenabled():  # ``main`` stopped it; a test's process keeps its own setting
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
        """Return a verb's summary, which the list of verbs and completion need."""
        return TyperCommand(cmd_name, help=VERBS[cmd_name].summary) if cmd_name in VERBS else None

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the called verb with its options."""
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
