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
from combee.cli.shared.console import FAILED, USAGE, failure, remark
from combee_schemas.errors import CombeeError, ConfigurationError


class Verb(NamedTuple):
    """A verb's module and its line in the list of verbs."""

    module: str
    summary: str


PANELS = {
    "Use": {
        "up": Verb("combee.cli.up", "Run Kafka, all services, HTTP and the dashboard here."),
        "learn": Verb("combee.cli.learn.verb", "Learn from a file or folder, wait, print the playbook."),
        "publish": Verb("combee.cli.publish", "Publish lines; the same line twice counts once."),
        "playbook": Verb("combee.cli.playbook.group", "Read, compare, import, edit, label, undo playbooks."),
        "sync": Verb("combee.cli.sync", "Keep a region of AGENTS.md or a skill equal to a playbook."),
        "mcp": Verb("combee.cli.mcp", "Serve playbooks to coding assistants over MCP."),
    },
    "Judge": {
        "review": Verb("combee.cli.review", "Compare a candidate with what agents read; decide on it."),
        "evaluate": Verb("combee.cli.evaluate", "Score a version on held-out questions."),
        "branch": Verb("combee.cli.branch.verb", "Fork a playbook to learn with other settings; adopt it."),
        "replay": Verb("combee.cli.replay.verb", "Re-run learning from the log, or with other settings."),
        "why": Verb("combee.cli.why", "Show what taught an entry: its versions, reflections, runs."),
    },
    "Operate": {
        "status": Verb("combee.cli.status", "Show topics, the backlog of every service, all playbooks."),
        "top": Verb("combee.cli.top.verb", "Watch lags, windows, batches, retention and cost; q quits."),
        "doctor": Verb("combee.cli.doctor.verb", "Check everything that can be wrong, and name remedies."),
        "ledger": Verb("combee.cli.ledger", "Account for every reflection and retained trace."),
        "dlq": Verb("combee.cli.dlq.group", "Dead letters: list, show, retry, drop."),
        "archive": Verb("combee.cli.archive", "Write a playbook, or a whole topic prefix, to one file."),
        "restore": Verb("combee.cli.restore", "Read an archive back into an empty prefix."),
        "forget": Verb("combee.cli.forget", "Erase a person's data, or runs and what only they taught."),
    },
    "Lab": {
        "demo": Verb("combee.cli.demo.verb", "Watch simulated agents learn, on a temporary Kafka."),
        "sim": Verb("combee.cli.sim", "The stand-in model: a simulation that needs no API key."),
        "experiment": Verb("combee.cli.experiment", "Re-run one of the paper's experiments."),
    },
}
"""The verbs by panel of the list; it is shown without importing any of them."""
SERVICES = {
    "worker": Verb("combee.cli.worker", "Run one service until SIGTERM or Ctrl-C."),
    "broker": Verb("combee.cli.broker", "The embedded broker: real Apache Kafka from its jars, on loopback."),
    "topics": Verb("combee.cli.topics", "The topics: create, check, show, rights."),
    "tenant": Verb("combee.cli.tenant", "Tenants (name spaces of playbooks): delete one."),
    "key": Verb("combee.cli.key", "Make a key or a secret that proves who somebody is."),
}
"""Verbs for those who run services one by one, under the names that Compose and the chart use."""
VERBS = {name: verb for panel in (*PANELS.values(), SERVICES) for name, verb in panel.items()}
MOVED = {
    "adopt": ("branch", "adopt"),
    "bisect": ("playbook", "bisect"),
    "controller": ("playbook", "controller"),
    "cost": ("playbook", "cost"),
}
"""Former names of verbs; each still runs, with a remark that tells the new name."""
USAGE_LINE = "Usage: combee [--version] [--install-completion] VERB [--help]"
LABEL, NAME = 9, 12
"""Widths of the first two columns of the list of verbs."""


@cache
def _command(name: str) -> Any:
    """Return a verb's command, cached: making its options is slow, and one run looks it up several times."""
    app = typer.Typer()
    import_module(VERBS[name].module).register(app)
    if not gc.isenabled():  # ``main`` turned it off for a faster start; tests leave it on
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

    def format_help(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002 - the group's own signature
        """Write the list of verbs, which fits one screen of 24 lines."""
        rows = [USAGE_LINE]
        for panel, verbs in PANELS.items():
            for number, (name, verb) in enumerate(verbs.items()):
                label = "" if number else panel
                rows.append(f"{label:{LABEL}}{name:{NAME}}{verb.summary.removesuffix('.')}")
        rows.append(f"{'Services':{LABEL}}{', '.join(SERVICES)}: services run one by one, and keys")
        formatter.write("\n".join(rows) + "\n")

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ARG002 - the group's own signature
        """Return a command with a verb's summary alone: the list of verbs and completion need no more."""
        return TyperCommand(cmd_name, help=VERBS[cmd_name].summary) if cmd_name in VERBS else None

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the called verb with its options; a former name is replaced by the new one."""
        if (moved := MOVED.get(args[0])) is not None:
            if not ctx.resilient_parsing:  # it is True during completion
                remark(f"'combee {args[0]}' is now 'combee {' '.join(moved)}'")
            args = [*moved, *args[1:]]
        name, summary, rest = super().resolve_command(ctx, args)
        # The summary is exchanged for the verb, which is imported here.
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
