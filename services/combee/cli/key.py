"""``combee key NAME``: make a key or a secret that proves who somebody is."""

from typing import Annotated

import typer

from combee.adapters.ports import FatalError
from combee.assembly.local import keys
from combee.cli.shared.console import output, print_json, remark
from combee.cli.shared.options import AsJson
from combee.process.settings.loading import load_settings


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command(epilog="Example: combee key support-bot")(key)


def key(
    name: Annotated[
        str,
        typer.Argument(
            help="the agent, team or person that the key is for; its lessons count under this name"
        ),
    ],
    *,
    kafka: Annotated[
        bool,
        typer.Option("--kafka", help="the secret of a producer that writes to Kafka, not to the gateway"),
    ] = False,
    admin: Annotated[
        bool, typer.Option("--admin", help="the key may also give commands, such as approving a version")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Make a key or a secret that proves who somebody is.

    It prints the two lines for an agent's environment.
    """
    settings = load_settings()
    if kafka and admin:
        raise FatalError("--admin is for gateway keys: leave --kafka out, or --admin")
    gateway = settings.gateway
    url = f"http://{gateway.gateway_host}:{gateway.gateway_port or 'PORT'}"
    try:
        made = (
            keys.new_secret(settings, name) if kafka else keys.new_key(settings, name, admin=admin, url=url)
        )
    except OSError as error:
        raise FatalError(f"no key was made: {error}") from error
    if as_json:
        print_json({"name": made.name, "file": str(made.path), "lines": list(made.lines)})
        return
    for line in made.lines:
        output().print(line, markup=False, soft_wrap=True, highlight=False)
    remark(f"{made.name} is in {made.path}: {made.reload}")
    if not (kafka or gateway.gateway_port):
        remark("COMBEE_GATEWAY_PORT is 0: replace PORT by the port that the gateway names when it starts")
