"""Checks before anything starts: wrong settings end here, with exit code 2."""

import tempfile

from combee.adapters.extras import pip_install
from combee.adapters.ports import ConfigurationError
from combee.assembly.backends import embedding_address, model_address
from combee.assembly.local.extras import without
from combee.assembly.local.ports import require_port
from combee.assembly.local.stack_file import data_dir
from combee.process.settings.loading import Settings
from combee.process.settings.model import ModelSettings

SIMULATED = "simulated"
"""The name of the stand-in model."""
MODEL_S = 5.0
"""Seconds after which a model's server without an answer counts as slow, not as missing."""
GATEWAY_REMEDY = "end that process, or choose another port with COMBEE_GATEWAY_PORT (0: a free one)"


def model_flag(*, simulated: bool, model: str | None, base_url: str | None = None) -> str | None:
    """Return the model that the flags name; None: they name none.

    Raises
    ------
    ConfigurationError
        If they name two.
    """
    if simulated and (model or base_url):
        flag = f"--model {model}" if model else "--base-url"  # an address may hold a password
        raise ConfigurationError(f"--simulated and {flag} name two models: give one of them")
    return SIMULATED if simulated else model


def uses_stand_in(settings: ModelSettings, *, simulated: bool) -> bool:
    """Return whether to start a stand-in model: its name without an address means the same as the flag."""
    return simulated or (settings.model == SIMULATED and not settings.base_url)


async def check(settings: Settings, *, simulated: bool, gateway: bool = False) -> None:
    """Check whether the configured deployment can be started.

    Raises
    ------
    ConfigurationError
        If it cannot; the message names the remedy.
    """
    embedded = settings.kafka.bootstrap_servers is None
    require_extras(*(["embedded"] if embedded else []), *(["sim"] if simulated else []))
    if not simulated:
        require_model(settings.model)
        if settings.model.embedding_model:
            embedding_address(settings.model)
    if gateway:
        require_port(settings.gateway.gateway_host, settings.gateway.gateway_port, GATEWAY_REMEDY)
    if not simulated:
        await require_answer(settings.model)


def require_extras(*extras: str) -> None:
    """Refuse to start parts that are not installed.

    Raises
    ------
    ConfigurationError
        If something is missing; one command installs all of it.
    """
    if absent := without(*extras):
        raise ConfigurationError(f"required parts of Combee are not installed: {pip_install(*absent)}")


def require_model(settings: ModelSettings) -> None:
    """Refuse settings without a usable model.

    Raises
    ------
    ConfigurationError
        If no model is named, its address is invalid, or its key is missing.
    """
    model_address(settings)


async def require_answer(settings: ModelSettings) -> None:
    """Refuse a model whose server is away, does not know it or refuses the key; a slow server is accepted.

    Raises
    ------
    ConfigurationError
        As above.
    """
    from combee.adapters.openai.probe import model_trouble  # noqa: PLC0415 - loads the SDK of OpenAI

    name, server = model_address(settings)
    trouble = await model_trouble(name, server, timeout_s=min(MODEL_S, settings.model_timeout_s))
    if trouble:
        raise ConfigurationError(f"the model {settings.model} cannot be used: {trouble}")


def require_data_dir(settings: Settings) -> None:
    """Refuse a data directory that cannot be written, before a broker is fetched for it.

    Raises
    ------
    ConfigurationError
        If it cannot be created or written, or other users can write in it.
    """
    folder = data_dir(settings)
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise ConfigurationError(
            f"the data directory {folder} cannot be written ({error.strerror}): correct its rights, or name"
            " another with COMBEE_DATA_DIR"
        ) from error
