"""``combee sim serve``: the stand-in model. Everything it answers is simulated."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from combee.assembly.local.supervisor import die_with_parent
from combee.process.settings.loading import load_settings
from combee_sim.family.knowledge import NOTHING_KNOWN, read_knowledge
from combee_sim.law.rules import IN_FORCE, parse_law
from combee_sim.modes import parse_modes
from combee_sim.server.faults import parse_faults
from combee_sim.server.latency import parse_latency
from combee_sim.server.server import serve as run
from combee_sim.server.standin import SimOptions

T = TypeVar("T")
LAW_HELP = "what an overloaded call is charged for: in_steps, exact_text, without_playbook, lessons_only"
MODE_HELP = (
    "MODE or MODE=RATE, may be repeated: paraphrase, invented, correlated, contradictions, false_yes, false_no; and"
    " one of silent, named, lumped, claimed, blurred, mixed for the lessons that an overloaded call overlooks"
)
sim = typer.Typer(help="The stand-in model: a simulation that needs no API key.")


def register(app: typer.Typer) -> None:
    """Add the verbs."""
    app.add_typer(sim, name="sim")


@sim.callback()
def group() -> None:
    """The stand-in model: a simulation, always labelled as one."""


@sim.command(epilog="Example: combee sim serve --port 8700 --latency lognormal:0.8,0.5 --fault 429=0.05")
def serve(
    *,
    port: Annotated[int, typer.Option(help="0 takes a free one")] = 0,
    seed: Annotated[int, typer.Option(help="same seed, same answers")] = 0,
    latency: Annotated[
        str, typer.Option(help="seconds, lognormal:MEDIAN,SIGMA or pareto:MEDIAN,SHAPE")
    ] = "0",
    fault: Annotated[list[str] | None, typer.Option(help="KIND=RATE, may be repeated")] = None,
    law: Annotated[str, typer.Option(help=LAW_HELP)] = IN_FORCE,
    mode: Annotated[list[str] | None, typer.Option(help=MODE_HELP)] = None,
    context_tokens: Annotated[
        int | None, typer.Option(min=1, help="context window (tokens): longer prompts are refused")
    ] = None,
    call_log: Annotated[Path | None, typer.Option(help="one JSON line per call")] = None,
    knows: Annotated[
        list[Path] | None, typer.Option(help="ACE samples: the formula behind each question; may be repeated")
    ] = None,
    die_with_parent_: Annotated[bool, typer.Option("--die-with-parent", hidden=True)] = False,
) -> None:
    """Serve the simulated model on loopback until Ctrl-C."""
    if die_with_parent_:
        die_with_parent()
    options = SimOptions(
        port=port,
        seed=seed,
        latency=parse(parse_latency, latency),
        faults=parse(parse_faults, fault or []),
        law=parse(parse_law, law),
        modes=parse(parse_modes, mode or []),
        context_tokens=context_tokens,
        call_log=call_log,
        knowledge=sum((parse(read_knowledge, file) for file in knows or ()), NOTHING_KNOWN),
    )
    ready_file = load_settings().worker.ready_file
    asyncio.run(
        run(options, on_ready=lambda url: typer.echo(f"simulated model at {url}"), ready_file=ready_file)
    )


def parse(read: Callable[[Any], T], given: object) -> T:
    """Return an option parsed by ``read``; a wrong value is a usage error."""
    try:
        return read(given)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
