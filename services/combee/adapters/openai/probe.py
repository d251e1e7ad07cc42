"""Probes of a model server: whether it has a model, and which response formats it supports."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from combee.adapters.asking.errors import CallFailedError, CallRefusedError
from combee.adapters.asking.replies import Answer, UnusableError, read_reply
from combee.adapters.openai.connection import Connection
from combee.adapters.openai.names import Server
from combee.adapters.openai.wire import RequestOptions, option_to_drop, request
from combee.adapters.ports import CombeeError
from combee_schemas.model import Prompt, request_body

Form = Literal["json_schema", "json_object", "text"]
Outcome = Literal["works", "ignored", "refused", "failed"]
"""ignored: it answered, and not in this form; failed: no answer."""

DROPPED: Mapping[Form, frozenset[str]] = {
    "json_schema": frozenset(),
    "json_object": frozenset({"json_schema"}),
    "text": frozenset({"json_schema", "json_object"}),
}
MAX_REPLY_BYTES = 1 << 20
SMALLEST_QUESTION = ({"role": "user", "content": "Say OK."},)
ADDRESS = (
    "start the server, or correct its address"
    " (--base-url, COMBEE_BASE_URL, OPENAI_BASE_URL, AZURE_OPENAI_ENDPOINT)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """The result of one form; ``trouble`` is the reason if there was no answer."""

    outcome: Outcome
    trouble: str = ""
    seconds: float = 0.0


async def model_trouble(name: str, server: Server, *, timeout_s: float) -> str | None:
    """Return why a model cannot be used, with the remedy; None if it can, or if the server does not answer in time.

    A server that lists the model gets no question. Others get the smallest question: a name that is not listed may be
    an alias, and many servers list nothing.

    Raises
    ------
    ConfigurationError
        If the settings make no sense.
    """
    connection = Connection(server, timeout_s=timeout_s, max_reply_bytes=MAX_REPLY_BYTES)
    try:
        if name not in await connection.models():
            smallest = request_body(SMALLEST_QUESTION, {"model": name, "max_tokens": 1})
            await connection.ask(smallest, SMALLEST_QUESTION)
    except CallFailedError as failed:
        if failed.unreachable:
            return f"{failed}; {ADDRESS}"
        return str(failed) if failed.permanent else None
    except CombeeError:
        return None  # the server knows the model but refuses the question
    finally:
        await connection.close()
    return None


async def try_forms(prompt: Prompt, *, name: str, server: Server, timeout_s: float) -> dict[Form, Tried]:
    """Ask in every form at once, each once, without retries; ``prompt`` has a schema.

    Raises
    ------
    FatalError
        If the settings make no sense.
    """
    connection = Connection(server, timeout_s=timeout_s, max_reply_bytes=MAX_REPLY_BYTES)
    options = RequestOptions(model=name, max_output_tokens=None, temperature=0.0, seed=None)
    try:
        tried = await asyncio.gather(
            *(_try(connection, options, prompt, dropped) for dropped in DROPPED.values())
        )
    finally:
        await connection.close()
    return dict(zip(DROPPED, tried, strict=True))


async def _try(
    connection: Connection, options: RequestOptions, prompt: Prompt, dropped: frozenset[str]
) -> Tried:
    try:
        answer = await _asked(connection, options, prompt, dropped)
    except CallRefusedError as refused:
        return Tried(outcome="refused", trouble=str(refused))
    except CombeeError as error:
        return Tried(outcome="failed", trouble=str(error))
    try:
        await asyncio.to_thread(read_reply, answer, prompt)
    except UnusableError as unusable:
        return Tried(outcome="ignored", trouble=str(unusable), seconds=answer.usage.seconds)
    return Tried(outcome="works", seconds=answer.usage.seconds)


async def _asked(
    connection: Connection, options: RequestOptions, prompt: Prompt, dropped: frozenset[str]
) -> Answer:
    """Ask, dropping options that the server refuses, except the form of the reply."""
    messages = ({"role": "system", "content": prompt.system}, {"role": "user", "content": prompt.user})
    while True:  # each round drops one more option, or ends
        parameters = request(options, prompt, dropped)
        try:
            return await connection.ask(request_body(messages, parameters), messages)
        except CallRefusedError as refused:
            name = option_to_drop(parameters, refused)
            if name is None or name in DROPPED["text"]:
                raise
            dropped |= {name}
