"""Checks before anything starts: what a newcomer gets wrong ends here, with exit code 2."""

import tempfile

from combee.adapters.ports import ConfigurationError
from combee.assembly.backends import embedding_address, model_address
from combee.assembly.local.extras import pip_install, without
from combee.assembly.local.ports import require_port
from combee.assembly.local.stack_file import data_dir
from combee.process.settings.loading import Settings
from combee.process.settings.model import ModelSettings

SIMULATED = "simulated"
"""The name of the stand-in model."""
MODEL_S = 5.0
"""A model's server that has not answered by then is believed to be there, and slow."""
GATEWAY_REMEDY = "end that, or choose another port with COMBEE_GATEWAY_PORT (0: a free one)"


def model_flag(*, simulated: bool, model: str | None, base_url: str | None = None) -> str | None:
    """Return the model that the flags name, if they do.

    Raises
    ------
    ConfigurationError
        If they name two.
    """
    if simulated and (model or base_url):
        flag = f"--model {model}" if model else "--base-url"  # an address may hold a password
        raise ConfigurationError(f"--simulated and {flag} name two models: give one of them")
    return SIMULATED if simulated else model


def stands_in(settings: ModelSettings, *, simulated: bool) -> bool:
    """Return whether a stand-in is to be started: its name without an address means what the flag does."""
    return simulated or (settings.model == SIMULATED and not settings.base_url)


async def check(settings: Settings, *, simulated: bool, gateway: bool = False) -> None:
    """Look whether what ``settings`` ask for can be started.

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
    """Refuse to start what is not installed.

    Raises
    ------
    ConfigurationError
        If something is missing; one command installs all of it.
    """
    if absent := without(*extras):
        raise ConfigurationError(f"parts of Combee that this needs are not installed: {pip_install(*absent)}")


def require_model(settings: ModelSettings) -> None:
    """Refuse settings without a model, or with one that cannot be asked.

    Raises
    ------
    ConfigurationError
        If no model is named, its address is none, or its key is missing.
    """
    model_address(settings)


async def require_answer(settings: ModelSettings) -> None:
    """Refuse a model whose server is away, does not know it or refuses the key; one that is slow will do.

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
        If it cannot be made or written, or others may write in it.
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
