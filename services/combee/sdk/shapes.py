"""Where the two interfaces of OpenAI's library take a prompt, and what they were asked: chat and responses."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from combee.sdk.streams import Gathered, GatheredChat, GatheredResponse

Arguments = Mapping[str, Any]
Messages = list[Mapping[str, Any]]
SYSTEM_ROLES = ("system", "developer")


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """One interface: its calls read and changed without its library."""

    field: str
    """The argument with what is asked."""
    asked: Callable[[Arguments], Messages]
    """What a call asks, as messages."""
    shown: Callable[[Arguments, str], dict[str, Any]]
    """The arguments with a playbook in front: first, so that providers' prompt caches hit."""
    gathered: Callable[[], Gathered]
    """What takes the pieces of a stream."""

    def held(self, arguments: Arguments) -> dict[str, Any]:
        """Return the arguments; what can be read only once is read."""
        given = arguments.get(self.field)
        if not isinstance(given, Iterable) or isinstance(given, (str, list, tuple)):
            return dict(arguments)
        return {**arguments, self.field: list(given)}


def _chat_asked(arguments: Arguments) -> Messages:
    return list(arguments.get("messages") or ())


def _chat_shown(arguments: Arguments, prompt: str) -> dict[str, Any]:
    messages = arguments.get("messages")
    if not prompt or not isinstance(messages, (list, tuple)):
        return dict(arguments)  # what is no list of messages, its server shall refuse
    first = messages[0].get("role") if messages and isinstance(messages[0], Mapping) else None
    role = first if first in SYSTEM_ROLES else "system"
    return {**arguments, "messages": [{"role": role, "content": prompt}, *messages]}


def _response_asked(arguments: Arguments) -> Messages:
    given = arguments.get("input") or ()
    text: Messages = [{"role": "user", "content": given}]
    items = text if isinstance(given, str) else [_item(one) for one in given]
    instructions = arguments.get("instructions")
    return [{"role": "system", "content": instructions}, *items] if instructions else items


def _item(item: Any) -> Mapping[str, Any]:
    """Return an item of a conversation as a message: a tool's call or result is named by its type."""
    fields = item if isinstance(item, Mapping) else item.model_dump(exclude_none=True)
    said = fields.get("content") or fields.get("output") or fields.get("arguments") or ""
    return {"role": fields.get("role") or fields.get("type") or "item", "content": said}


def _response_shown(arguments: Arguments, prompt: str) -> dict[str, Any]:
    # Not as an item of the input: the server would keep it with the conversation, once more at every turn.
    parts = [part for part in (prompt, arguments.get("instructions")) if part]
    return {**arguments, "instructions": "\n\n".join(parts)} if parts else dict(arguments)


CHAT = Shape(field="messages", asked=_chat_asked, shown=_chat_shown, gathered=GatheredChat)
RESPONSES = Shape(field="input", asked=_response_asked, shown=_response_shown, gathered=GatheredResponse)
