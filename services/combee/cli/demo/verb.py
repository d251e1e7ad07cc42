"""``combee demo``: the main job end to end; agents and model are simulated, Kafka and Combee are not."""

import asyncio
from typing import Annotated

import typer
from rich.console import Console

from combee.local.preflight import require_extras
from combee.settings.loading import load_settings

LATENCY = "0.25"


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command(epilog="Example: combee demo --questions 400 --agents 30")(demo)


def demo(
    *,
    questions: Annotated[int, typer.Option(min=20, help="questions the simulated agents work on")] = 640,
    agents: Annotated[int, typer.Option(min=1, help="simulated agents at once")] = 24,
    batch_size: Annotated[int, typer.Option(min=1, help="original reflections per batch")] = 40,
    seed: Annotated[int, typer.Option(help="same seed, same questions")] = 1,
    latency: Annotated[
        str, typer.Option(help="of the simulated model: seconds, or lognormal:MEDIAN,SIGMA")
    ] = LATENCY,
) -> None:
    """Start a throw-away Kafka, all services and a simulated fleet; watch it learn; prove nothing was lost."""
    require_extras("embedded", "sim")
    from combee.cli.demo.run import DemoOptions, run_demo  # noqa: PLC0415 - --help stays quick

    options = DemoOptions(
        settings=load_settings(
            model="simulated", batch_size=batch_size, llm_concurrency=32, topic_prefix="demo"
        ),
        questions=questions,
        agents=agents,
        seed=seed,
        latency=latency,
    )
    try:
        clean = asyncio.run(run_demo(options, Console()))
    except (KeyboardInterrupt, asyncio.CancelledError):
        typer.echo("stopped", err=True)
        raise typer.Exit(130) from None
    if not clean:
        raise typer.Exit(1)
