"""From a chat request to the stand-in's reply: a pure function of the prompt's text and the seed."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from combee.core.text.prompt import estimate_tokens
from combee_sim.family.knowledge import NOTHING_KNOWN, Knowledge
from combee_sim.law.law import LAW, Law
from combee_sim.modes import NO_MODES, Modes
from combee_sim.roles.agent import answer, judge
from combee_sim.roles.aggregator import aggregate, summarise, write
from combee_sim.roles.checker import check
from combee_sim.roles.reading import Reading, Role, read
from combee_sim.roles.reflector import reflect
from combee_sim.roles.tools import ToolCall, tool_call

MODEL = "simulated"
RECORD_INPUTS = "Inputs"
"""Key of the task in a run as GEPA records it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulated:
    """The stand-in's reply to one prompt, with facts for a log."""

    role: Role
    prompt_hash: str
    reply: Mapping[str, Any]
    content: str
    tokens_in: int
    tokens_out: int
    tool_call: ToolCall | None = None
    """A call that replaces the content."""


def respond(
    body: Mapping[str, Any],
    seed: int,
    knowledge: Knowledge = NOTHING_KNOWN,
    *,
    law: Law = LAW,
    modes: Modes = NO_MODES,
) -> Simulated:
    """Answer a chat-completions request; ``knowledge`` covers questions that do not contain their rule.

    Raises
    ------
    NotAChatError
        If it has no messages with text.
    """
    reading = read(body)
    if reading.role == "agent" and (call := tool_call(body, reading.last_user_text)):
        return Simulated(
            role=reading.role,
            prompt_hash=reading.prompt_hash,
            reply={},
            content="",
            tokens_in=reading.tokens,
            tokens_out=estimate_tokens(call.arguments),
            tool_call=call,
        )
    reply = _play(reading, seed, knowledge, law, modes)
    free = reading.role == "writer"
    content = str(reply["text"]) if free else json.dumps(reply, ensure_ascii=False)
    return Simulated(
        role=reading.role,
        prompt_hash=reading.prompt_hash,
        reply=reply,
        content=content,
        tokens_in=reading.tokens,
        tokens_out=estimate_tokens(content),
    )


def _play(reading: Reading, seed: int, knowledge: Knowledge, law: Law, modes: Modes) -> dict[str, Any]:
    match reading.role:
        case "aggregator":
            return aggregate(_recalled(reading, knowledge), seed, law, modes)
        case "reflector":
            return reflect(reading, knowledge, seed, modes)
        case "agent":
            return answer(reading, knowledge)
        case "summariser":
            return summarise(_recalled(reading, knowledge), seed, law, modes)
        case "writer":
            return write(_recalled(reading, knowledge), seed, law, modes)
        case "judge":
            return judge(reading)
        case "checker":
            return check(reading, seed, modes)


def _recalled(reading: Reading, knowledge: Knowledge) -> Reading:
    """Return the reading with data rows in place of the inputs of GEPA's records."""
    objects = (
        {**value, RECORD_INPUTS: knowledge.statement(str(value[RECORD_INPUTS]))}
        if RECORD_INPUTS in value
        else value
        for value in reading.objects
    )
    return replace(reading, objects=tuple(objects))
