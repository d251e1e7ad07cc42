"""Reading of calls and replies of OpenAI's library: chat completions and responses."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from combee.sdk.instrumentation import metadata_of
from combee.sdk.learning import tool_calls_text
from combee.sdk.openai.streams import StreamedChat, StreamedReply, StreamedResponse

Arguments = Mapping[str, Any]
Messages = list[Mapping[str, Any]]
SYSTEM_ROLES = ("system", "developer")


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """One endpoint, whose requests are read and changed without the library."""

    argument: str
    """Name of the argument with the input."""
    messages: Callable[[Arguments], Messages]
    """Returns a call's input as messages."""
    with_prompt: Callable[[Arguments, str], dict[str, Any]]
    """Returns the arguments with a playbook in front, so that providers' prompt caches hit."""
    new_reply: Callable[[], StreamedReply]
    """Returns a collector of a stream's pieces."""

    def repeatable(self, arguments: Arguments) -> dict[str, Any]:
        """Return the arguments with iterators turned into lists, because they are read twice."""
        given = arguments.get(self.argument)
        if not isinstance(given, Iterable) or isinstance(given, (str, list, tuple)):
            return dict(arguments)
        return {**arguments, self.argument: list(given)}


def _chat_messages(arguments: Arguments) -> Messages:
    return list(arguments.get("messages") or ())


def _chat_with_prompt(arguments: Arguments, prompt: str) -> dict[str, Any]:
    messages = arguments.get("messages")
    if not prompt or not isinstance(messages, (list, tuple)):
        return dict(arguments)  # the server refuses an input that is no list of messages
    first = messages[0].get("role") if messages and isinstance(messages[0], Mapping) else None
    role = first if first in SYSTEM_ROLES else "system"
    return {**arguments, "messages": [{"role": role, "content": prompt}, *messages]}


def _response_messages(arguments: Arguments) -> Messages:
    given = arguments.get("input") or ()
    text: Messages = [{"role": "user", "content": given}]
    items = text if isinstance(given, str) else [_item(item) for item in given]
    instructions = arguments.get("instructions")
    return [{"role": "system", "content": instructions}, *items] if instructions else items


def _item(item: Any) -> Mapping[str, Any]:
    """Return an item of a conversation as a message; the role of a tool's call or result is its type."""
    fields = item if isinstance(item, Mapping) else item.model_dump(exclude_none=True)
    if fields.get("type") == "function_call":
        call = str(fields.get("name") or ""), str(fields.get("arguments") or "")
        return {"role": "assistant", "content": tool_calls_text("", [call])}
    said = fields.get("content") or fields.get("output") or fields.get("arguments") or ""
    return {"role": fields.get("role") or fields.get("type") or "item", "content": said}


def _response_with_prompt(arguments: Arguments, prompt: str) -> dict[str, Any]:
    # Not an item of the input, which the server would add to the conversation again at every turn.
    parts = [part for part in (prompt, arguments.get("instructions")) if part]
    return {**arguments, "instructions": "\n\n".join(parts)} if parts else dict(arguments)


CHAT = Endpoint(
    argument="messages", messages=_chat_messages, with_prompt=_chat_with_prompt, new_reply=StreamedChat
)
RESPONSES = Endpoint(
    argument="input",
    messages=_response_messages,
    with_prompt=_response_with_prompt,
    new_reply=StreamedResponse,
)


def answer_text(reply: Any) -> str:
    """Return the text of a response, or of a completion's first choice, with tool calls as JSON."""
    choices = getattr(reply, "choices", None)
    if choices is None:
        items = getattr(reply, "output", None) or ()
        return _joined(
            getattr(reply, "output_text", None) or _output_text(items),
            [item for item in items if getattr(item, "type", "") == "function_call"],
        )
    if not choices:
        return ""
    message = getattr(choices[0], "message", None)
    calls = getattr(message, "tool_calls", None) or ()
    return _joined(
        getattr(message, "content", None) or getattr(message, "refusal", None),
        [getattr(call, "function", None) for call in calls],
    )


def _output_text(items: Sequence[Any]) -> str:
    """Return a response's text from its items, because only the library adds the field."""
    parts = (part for item in items for part in getattr(item, "content", None) or ())
    return "".join(part.text for part in parts if getattr(part, "type", "") == "output_text")


def _joined(said: Any, functions: Sequence[Any]) -> str:
    fields = ("name", "arguments")
    calls = [[str(getattr(function, field, "") or "") for field in fields] for function in functions]
    return tool_calls_text(str(said or ""), [(name, arguments) for name, arguments in calls])


def call_metadata(reply: Any, model: str) -> Mapping[str, str]:
    """Return a call's attributes under OpenTelemetry's names (GenAI semantic conventions)."""
    usage = getattr(reply, "usage", None)
    choices = getattr(reply, "choices", None)
    return metadata_of(
        request_model=model,
        response_model=getattr(reply, "model", None),
        finish_reasons=getattr(choices[0], "finish_reason", None)
        if choices
        else getattr(reply, "status", None),
        input_tokens=_count(usage, "input_tokens", "prompt_tokens"),
        output_tokens=_count(usage, "output_tokens", "completion_tokens"),
    )


def _count(usage: Any, *names: str) -> Any:
    return next((count for name in names if (count := getattr(usage, name, None)) is not None), None)
