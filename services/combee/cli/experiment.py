"""``combee experiment``: the paper's experiments re-run, on the stand-in (simulated) or on a real model.

The experiments are a separate package of a checkout, so their modules are imported on demand.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markdown import Markdown
from rich.progress import Progress

from combee.adapters.ports import ConfigurationError, FatalError
from combee.assembly.local.preflight import SIMULATED, model_flag, require_answer, require_model
from combee.cli.shared.console import COLUMNS, diagnostics, output, print_json, remark
from combee.cli.shared.options import AsJson, BaseUrl
from combee.cli.sim import LAW_HELP, MODE_HELP, parse
from combee.core.playbook.spend import SpendPolicy
from combee.process.settings.loading import load_settings
from combee.process.telemetry.logs import configure_logs
from combee_sim.law.rules import IN_FORCE, parse_law
from combee_sim.modes import parse_modes
from combee_sim.server.latency import parse_latency

if TYPE_CHECKING:
    from combee_experiments.data.samples import Data
    from combee_experiments.running.run import Progress as Moved
    from combee_experiments.running.setup import Setup

LIST = "list"
INTERRUPTED = 130


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command(epilog="Example: combee experiment overload --data formula_train.jsonl")(experiment)


def experiment(
    name: Annotated[str, typer.Argument(help="the experiment; 'list' shows all")],
    *,
    data: Annotated[
        list[Path] | None, typer.Option(help="ACE samples (JSON lines) to learn from; may be repeated")
    ] = None,
    family: Annotated[
        bool, typer.Option("--family", help="the built-in task family; the default without --data")
    ] = False,
    samples: Annotated[
        int | None, typer.Option(min=1, help="maximum number of samples to learn from")
    ] = None,
    questions: Annotated[int | None, typer.Option(min=1, help="maximum number of exam questions")] = None,
    seeds: Annotated[str, typer.Option(help="how many, or 0-4, or 1,3,5")] = "5",
    model: Annotated[
        str | None, typer.Option(help="a real model, such as openai/gpt-4.1-mini; else the stand-in")
    ] = None,
    base_url: BaseUrl = None,
    simulated: Annotated[
        bool, typer.Option("--simulated", help="the stand-in, whatever model is configured")
    ] = False,
    latency: Annotated[
        str,
        typer.Option(
            help="latency of a simulated call: seconds, or lognormal:MEDIAN,SIGMA; counted without waiting"
        ),
    ] = "1",
    law: Annotated[str, typer.Option(help=f"the stand-in's law, {LAW_HELP}")] = IN_FORCE,
    mode: Annotated[list[str] | None, typer.Option(help=f"the stand-in's mode, {MODE_HELP}")] = None,
    concurrency: Annotated[int, typer.Option(min=1, help="maximum number of concurrent model calls")] = 32,
    price_in: Annotated[float, typer.Option(min=0, help="price of a million tokens read")] = 0.0,
    price_cached_in: Annotated[
        float | None, typer.Option(min=0, help="price of a million tokens read from the prompt cache")
    ] = None,
    price_out: Annotated[float, typer.Option(min=0, help="price of a million tokens written")] = 0.0,
    out: Annotated[Path, typer.Option(help="parent of the results' folder NAME")] = Path("results"),
    fresh: Annotated[bool, typer.Option("--fresh", help="repeat finished measurements")] = False,
    plot: Annotated[bool, typer.Option(help="draw plot.png (needs matplotlib)")] = True,
    as_json: AsJson = False,
) -> None:
    """Re-run one of the paper's experiments.

    Finished measurements are not repeated.
    """
    _require_experiments()
    if name == LIST:
        _list(as_json=as_json)
        return
    from combee_experiments.running.setup import Setup, parse_seeds  # noqa: PLC0415 - of a checkout

    settings = load_settings(
        model=model_flag(simulated=simulated, model=model, base_url=base_url),
        base_url=base_url,
        llm_concurrency=concurrency,
    )
    asks_real = settings.model.model not in (None, SIMULATED)
    parse(parse_law, law)
    if asks_real and (mode or law != IN_FORCE):
        raise typer.BadParameter("--law and --mode apply only to the stand-in")
    if asks_real:
        require_model(settings.model)
        asyncio.run(require_answer(settings.model))
    setup = Setup(
        model=settings.model if asks_real else None,
        data=_data(data or [], family=family, samples=samples, questions=questions),
        seeds=parse(parse_seeds, seeds),
        latency=parse(parse_latency, latency),
        law=law,
        modes=parse(parse_modes, mode or []),
        concurrency=concurrency,
        samples=samples,
        prices=SpendPolicy(price_in=price_in, price_cached_in=price_cached_in, price_out=price_out)
        if price_in or price_out
        else settings.spend.policy(settings.model.model),
        cache=out / "reflections",
    )
    _run(name, setup, out / name, fresh=fresh, plot=plot, as_json=as_json)


def _require_experiments() -> None:
    """Refuse where only the product is installed.

    Raises
    ------
    ConfigurationError
        If the experiments are not there; the message names the remedy.
    """
    if find_spec("combee_experiments") is None:
        raise ConfigurationError(
            "the experiments are not part of the installed package: run 'make setup' in a checkout of Combee, and"
            " 'combee experiment' there"
        )


def _list(*, as_json: bool) -> None:
    from combee_experiments.catalogue import CATALOGUE  # noqa: PLC0415 - of a checkout

    if as_json:
        print_json(
            [{"name": experiment.name, "about": experiment.about} for experiment in CATALOGUE.values()]
        )
        return
    for experiment in CATALOGUE.values():
        output().print(f"{experiment.name:>10}  {experiment.about}", markup=False)


def _data(
    files: list[Path], *, family: bool, samples: int | None, questions: int | None
) -> "tuple[Data, ...]":
    """Return the data to learn from, cut to ``--samples`` and ``--questions``."""
    from combee_experiments.data import samples as data  # noqa: PLC0415 - of a checkout

    try:
        families = [data.load(file) for file in files]
    except data.DataError as error:
        raise FatalError(str(error)) from error
    if family or not files:
        families.append(data.family())
    names = [task.name for task in families]
    if len(set(names)) < len(names):
        raise typer.BadParameter("two data files have the same name, and tables name rows by it: rename one")
    return tuple(replace(task, train=task.train[:samples], exam=task.exam[:questions]) for task in families)


def _run(name: str, setup: "Setup", folder: Path, *, fresh: bool, plot: bool, as_json: bool) -> None:
    from combee_experiments.catalogue import CATALOGUE  # noqa: PLC0415 - of a checkout
    from combee_experiments.running import results  # noqa: PLC0415 - of a checkout
    from combee_experiments.running.plot import require  # noqa: PLC0415 - of a checkout
    from combee_experiments.running.run import run  # noqa: PLC0415 - of a checkout
    from combee_experiments.running.store import Store  # noqa: PLC0415 - of a checkout

    # Some experiments run the services themselves, and standard output is the result.
    configure_logs("warning", json=False)
    if name not in CATALOGUE:
        raise typer.BadParameter(f"no experiment {name!r}: there are {', '.join(CATALOGUE)}")
    if plot:
        require()
    store = Store(folder / results.CELLS, fresh=fresh)
    try:
        with _progress() as show:
            measured, report = run(CATALOGUE[name].load(), setup, store, show)
    except KeyboardInterrupt:
        remark(f"stopped; finished cells are in {store.path}, and the same command resumes from there")
        raise typer.Exit(INTERRUPTED) from None
    files = results.write(folder, name, setup, measured, report, plot=plot)
    if as_json:
        print_json(results.as_json(name, setup, measured, report))
    elif output().is_terminal:
        output().print(Markdown(results.as_markdown(name, setup, report)))
    else:
        typer.echo(results.as_markdown(name, setup, report), nl=False)
    remark("written: " + ", ".join(map(str, files)))


@contextmanager
def _progress() -> "Iterator[Callable[[Moved], None]]":
    """Show on standard error how many cells are done, and which one is measured now."""
    console = diagnostics()
    with Progress(*COLUMNS, console=console, transient=True, disable=not console.is_terminal) as progress:
        bar = progress.add_task("cells")

        def show(moved: "Moved") -> None:
            progress.update(bar, completed=moved.done, total=moved.total, description=moved.next or "cells")

        yield show
