"""``combee doctor``: check the deployment and name remedies."""

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from combee.adapters.ports import TransientError
from combee.assembly.local.deployment import beside, deployment
from combee.cli.shared.console import FAILED, output, print_json
from combee.cli.shared.options import AsJson, BaseUrl, Model, Servers
from combee.cli.shared.settings import deployed_settings
from combee.core.log.diagnosis import Check, failed
from combee.core.text.forms import printable
from combee.core.text.redact import HIDDEN, redacted
from combee.process.settings.group import SettingsError
from combee.process.settings.loading import Settings, load_settings
from combee.process.telemetry.logs import configure_logs

COLOURS = {"ok": "green", "warn": "yellow", "fail": "red", "skip": "dim"}
SHORTEST_SECRET = 4


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command(epilog="Example: combee doctor --json. Exit codes: 0 nothing failed, 1 something did.")(
        doctor
    )


def doctor(
    *,
    timeout: Annotated[float, typer.Option(min=0.1, help="seconds that each check may take")] = 10.0,
    model: Model = None,
    base_url: BaseUrl = None,
    bootstrap_servers: Servers = None,
    embeddings: Annotated[
        bool,
        typer.Option(
            "--embeddings",
            help="check nothing; measure the embedding model on labelled pairs and propose its threshold",
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Check everything that can be wrong, and name remedies.

    The model is asked three small questions, which cost some hundred tokens; --embeddings costs some ten thousand.
    """
    if embeddings:
        _measure(load_settings(model=model, base_url=base_url), as_json=as_json)
        return
    try:
        settings = deployed_settings(model=model, base_url=base_url, bootstrap_servers=bootstrap_servers)
    except SettingsError as error:
        remedy = "correct it; docs/reference/settings.md has every setting"
        checks = [Check(name="settings", verdict="fail", says=redacted(str(error)), remedy=remedy)]
    else:
        from combee.cli.doctor.examine import examine  # noqa: PLC0415 - wrong settings are reported without it

        up = deployment(settings)
        settings = beside(up, settings, model=model, base_url=base_url)
        results = asyncio.run(examine(settings, up, timeout))
        checks = [_without_secrets(check, _secrets(settings)) for check in results]
    _tell(checks, as_json=as_json)


def _tell(checks: Sequence[Check], *, as_json: bool) -> None:
    """Print the checks, and exit with 1 if one failed."""
    if as_json:
        print_json({"healthy": not failed(checks), "checks": [asdict(check) for check in checks]})
    else:
        _print(checks, output())
    if failed(checks):
        raise typer.Exit(FAILED)


def _measure(settings: Settings, *, as_json: bool) -> None:
    from combee.cli.doctor.examine import EMBEDDINGS, SILENT  # noqa: PLC0415 - only this option needs it
    from combee.cli.doctor.similarity import measured  # noqa: PLC0415 - as above

    configure_logs("error", json=False, libraries=SILENT)
    try:
        result = asyncio.run(measured(settings.model))
    except TransientError as error:
        check = Check(name="embeddings", verdict="fail", says=str(error), remedy=EMBEDDINGS)
        _tell([_without_secrets(check, _secrets(settings))], as_json=as_json)
        return
    if as_json:
        print_json(result.as_json())
    else:
        result.print(output())


def _secrets(settings: Settings) -> list[str]:
    values = [secret.get_secret_value() for secret in settings.secrets()]
    # The stand-in's key is its name: a placeholder, and no secret.
    return [value for value in values if len(value) >= SHORTEST_SECRET and value != settings.model.model]


def _without_secrets(check: Check, secrets: Iterable[str]) -> Check:
    """Return the check without known secrets and texts that look like secrets."""
    says, remedy = check.says, check.remedy
    for secret in secrets:
        says, remedy = says.replace(secret, HIDDEN), remedy.replace(secret, HIDDEN)
    return replace(check, says=redacted(says), remedy=redacted(remedy))


def _print(checks: Sequence[Check], console: Console) -> None:
    width = max(len(check.name) for check in checks)
    for check in checks:
        colour = COLOURS[check.verdict]
        head = f"[{colour}]{check.verdict:>4}[/]  {check.name:<{width}}  "
        console.print(f"{head}{escape(printable(check.says))}", soft_wrap=True)
        if check.verdict in {"warn", "fail"}:
            console.print(f"{'':{width + 8}}→ {escape(printable(check.remedy))}", soft_wrap=True)
    count = sum(check.verdict == "fail" for check in checks)
    console.print(f"{count} failed" if count else "nothing failed", style="red" if count else "green")
