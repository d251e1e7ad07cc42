"""``wrap_openai``: a client of OpenAI's library whose calls are shown the playbook and become traces.

OpenAI's library is not imported. Every helper of its clients (``create``, ``parse``, ``stream``, ``with_options``,
``with_raw_response``, ``with_streaming_response``, ``beta``) ends in one public method of the client, ``request``: a
subclass of the client's own class changes the body there and reads the answer. Libraries made with the same generator
also have that method. For any other client the methods themselves are replaced, and a warning names, once, each
method that cannot be replaced.
"""

import copy
import inspect
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

from combee.sdk.client import BaseClient
from combee.sdk.instrumentation import Instrumentation
from combee.sdk.learning import CURRENT, Run, last_question
from combee.sdk.logs import guarded
from combee.sdk.openai.calls import CHAT, RESPONSES, Endpoint, answer_text, call_metadata
from combee.sdk.openai.streams import RecordedStream, record_body, reply_of_body
from combee.sdk.view import PlaybookView
from combee_schemas.playbook import NO_LABEL

C = TypeVar("C")

METHODS = ("create", "parse")
HELPERS = ("stream", "with_raw_response", "with_streaming_response", "with_options", "copy")
"""Helpers that bypass ``METHODS`` and are covered only on OpenAI's own clients."""

ENDPOINTS = {"/chat/completions": CHAT, "/responses": RESPONSES}
OTHER_CALLS = ("/completions", "/runs")
"""Path ends of further model calls, which have no place for a playbook."""
SOCKETS = ("realtime", "responses")
"""Parts of a client that open WebSockets with ``connect``, which bypass ``request``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedCall:
    """A call in progress, and the run that records it when its answer arrives."""

    run: Run
    injector: "Injector"
    endpoint: Endpoint
    arguments: Mapping[str, Any]

    def answered(self, reply: Any) -> None:
        """Record the answer; errors of recording never reach the agent."""
        self._record(lambda: reply)

    def received(self, body: bytes) -> None:
        """Record the answer in the body of an HTTP response."""
        self._record(lambda: reply_of_body(body, self.endpoint.new_reply()))

    def _record(self, read_reply: Callable[[], Any]) -> None:
        with guarded("a call could not be recorded"):
            reply = read_reply()
            model = str(self.arguments.get("model") or "")
            messages = self.endpoint.messages(self.arguments)
            self.run.recorded(messages, answer_text(reply), call_metadata(reply, model))
            self.injector.end(self.run, None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Injector(Instrumentation):
    """Injects the playbook into calls and assigns them to runs."""

    def warn_uncovered(self, what: str) -> None:
        """Log once that calls made in this way are not covered."""
        if self.ref is not None or CURRENT.get() is not None:
            self.once.warn(
                what,
                "wrap_openai does not cover %s: such calls are shown no playbook and are not recorded;"
                " use chat.completions or responses",
                what,
            )

    def warning(self, what: str, original: Callable[..., Any]) -> Callable[..., Any]:
        """Return ``original`` with a warning that it is not covered."""

        def with_warning(*args: Any, **arguments: Any) -> Any:
            self.warn_uncovered(what)
            return original(*args, **arguments)

        return with_warning

    def begin_call(
        self, endpoint: Endpoint, view: PlaybookView | None, arguments: dict[str, Any]
    ) -> tuple[dict[str, Any], RecordedCall | None]:
        """Return the arguments with the playbook in front, and the call to record, None if it is not recorded."""
        run = self.begin(view)
        if run is None:
            return arguments, None
        given = endpoint.repeatable(arguments)
        prompt = run.prompt(_question(endpoint, given), self.budget_tokens)
        call = RecordedCall(run=run, injector=self, endpoint=endpoint, arguments=given)
        return endpoint.with_prompt(given, prompt), call


def _question(endpoint: Endpoint, arguments: Mapping[str, Any]) -> str:
    """Return a call's last user message, empty without one or if the call is invalid."""
    try:
        return last_question(endpoint.messages(arguments))
    except Exception:  # noqa: BLE001 - the agent's call must not fail here
        return ""


def recorded_call(
    original: Callable[..., Any], endpoint: Endpoint, injector: Injector, *, is_async: bool
) -> Callable[..., Any]:
    """Return ``original`` with the playbook injected and its answer recorded."""

    def finished(reply: Any, call: RecordedCall | None, arguments: Mapping[str, Any]) -> Any:
        if call is None:
            return reply
        if arguments.get("stream"):
            return RecordedStream(reply, endpoint.new_reply(), call.answered)
        call.answered(reply)
        return reply

    def sync(*args: Any, **arguments: Any) -> Any:
        changed, call = injector.begin_call(endpoint, injector.playbook(), arguments)
        return finished(original(*args, **changed), call, arguments)

    async def asynchronous(*args: Any, **arguments: Any) -> Any:
        changed, call = injector.begin_call(endpoint, await injector.awaited_playbook(), arguments)
        reply: Awaitable[Any] | Any = original(*args, **changed)
        return finished(await reply if inspect.isawaitable(reply) else reply, call, arguments)

    return asynchronous if is_async else sync


class Overlay:
    """An object with some attributes replaced; helpers that are not covered warn once."""

    def __init__(self, original: Any, injector: Injector, **replaced: Any) -> None:
        self.__dict__.update(replaced, _original=original, _injector=injector)

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self._original, name)
        if name in HELPERS:
            self._injector.warn_uncovered(name)
        return attribute


def wrap_openai(
    client: C,
    *,
    playbook: str | None = None,
    label: str = NO_LABEL,
    fallback: str = "",
    caller: str = "",
    combee: BaseClient | None = None,
    budget_tokens: int | None = None,
    on_end: Callable[[Run], object] | None = None,
) -> C:
    """Return a copy of an ``OpenAI`` or ``AsyncOpenAI`` client.

    Its calls, streamed ones too, are shown the playbook and recorded. Inside ``learning`` a call belongs to that run
    and is shown its playbook. Outside, each call is a separate run of ``playbook``; without ``playbook`` the call is
    unchanged. ``combee``: None is the default client. ``budget_tokens``: of a larger playbook a call is shown the
    entries nearest to its last user message; None: the whole playbook. A budget of ``learning`` has precedence.
    ``caller``: the reader's name outside ``learning``, see ``Client.playbook``. ``on_end`` is called with each call's
    run before the run is handed over, for example to report its outcome (``run.outcome``).

    Raises
    ------
    TypeError
        If ``client`` has neither ``chat.completions.create`` nor ``responses.create``.
    """
    chat, responses = getattr(client, "chat", None), getattr(client, "responses", None)
    completions = getattr(chat, "completions", None)
    can = [endpoint for endpoint in (completions, responses) if callable(getattr(endpoint, "create", None))]
    if not can:
        raise TypeError(
            "wrap_openai needs a client with chat.completions.create or responses.create, such as openai.OpenAI()"
        )
    injector = Injector.of(
        playbook,
        label=label,
        fallback=fallback,
        caller=caller,
        combee=combee,
        budget_tokens=budget_tokens,
        on_end=on_end,
    )
    if _has_request(type(client)):
        return _subclassed(client, injector)
    is_async = hasattr(type(client), "__aenter__")
    wrapped: Any = copy.copy(client)
    for name in HELPERS:
        if callable(original := getattr(client, name, None)):
            setattr(wrapped, name, injector.warning(name, original))
    if completions in can:
        recorded = _recorded_resource(completions, CHAT, injector, is_async=is_async)
        wrapped.chat = Overlay(chat, injector, completions=recorded)
    if responses in can:
        wrapped.responses = _recorded_resource(responses, RESPONSES, injector, is_async=is_async)
    return wrapped  # type: ignore[no-any-return]  # a copy of the given client


# ---- clients whose calls all use one method


def _has_request(kind: type[Any]) -> bool:
    request = getattr(kind, "request", None)
    return (
        inspect.isfunction(request) and {"cast_to", "options"} <= inspect.signature(request).parameters.keys()
    )


def _subclassed(client: C, injector: Injector) -> C:
    """Return a copy of a client in a subclass, which its ``copy`` and ``with_options`` keep."""
    kind: Any = getattr(type(client), "__wrapped__", type(client))  # wrapping again replaces the first
    own = {"__wrapped__": kind, "request": _request(kind.request, injector)}
    own |= {name: _WarningPart(name, kind, injector) for name in SOCKETS if hasattr(kind, name)}
    made: Any = object.__new__(type(kind.__name__, (kind,), {"__module__": kind.__module__, **own}))
    # A client's cached parts are bound to it: the copy has to create its own.
    made.__dict__.update(
        (name, value)
        for name, value in vars(client).items()
        if not isinstance(inspect.getattr_static(kind, name, None), cached_property)
    )
    return made  # type: ignore[no-any-return]  # see above


def _request(original: Callable[..., Any], injector: Injector) -> Callable[..., Any]:
    """Return a client's ``request`` with the playbook injected and its answer recorded."""

    def begin(options: Any, endpoint: Endpoint, view: PlaybookView | None) -> tuple[Any, RecordedCall | None]:
        body, call = injector.begin_call(endpoint, view, options.json_data)
        changed = copy.copy(options)
        changed.json_data = body
        return changed, call

    def sync(self: Any, cast_to: Any, options: Any, *args: Any, **more: Any) -> Any:
        endpoint = _endpoint_of(options, injector)
        if endpoint is None:
            return original(self, cast_to, options, *args, **more)
        changed, call = begin(options, endpoint, injector.playbook())
        reply = original(self, cast_to, changed, *args, **more)
        return _observed(reply, call)

    async def asynchronous(self: Any, cast_to: Any, options: Any, *args: Any, **more: Any) -> Any:
        endpoint = _endpoint_of(options, injector)
        if endpoint is None:
            return await original(self, cast_to, options, *args, **more)
        changed, call = begin(options, endpoint, await injector.awaited_playbook())
        reply = await original(self, cast_to, changed, *args, **more)
        return _observed(reply, call)

    return asynchronous if inspect.iscoroutinefunction(original) else sync


def _endpoint_of(options: Any, injector: Injector) -> Endpoint | None:
    """Return a request's endpoint, None if it is no model call or has no place for a playbook."""
    path = str(options.url).partition("?")[0]
    end = next((end for end in (*ENDPOINTS, *OTHER_CALLS) if path.endswith(end)), None)
    if end is None or str(options.method).lower() != "post":
        return None
    if end in ENDPOINTS and isinstance(options.json_data, dict):
        return ENDPOINTS[end]
    injector.warn_uncovered(f"POST {end}")
    return None


def _observed(reply: Any, call: RecordedCall | None) -> Any:
    """Return the unchanged reply, which is recorded when its text has been read."""
    if call is None:
        return reply
    # A raw response, a stream over one, or a value parsed from one.
    response = getattr(reply, "http_response", None) or getattr(reply, "response", None) or reply
    if hasattr(response, "iter_bytes"):
        record_body(response, call.received)
    else:
        call.answered(reply)
    return reply


class _WarningPart:
    """A part of a client whose ``connect`` warns once that it is not covered."""

    def __init__(self, name: str, kind: Any, injector: Injector) -> None:
        self._name = name
        self._kind = kind
        self._injector = injector

    def __get__(self, client: Any, owner: Any) -> Any:
        # The client caches the part, so this runs once.
        part = inspect.getattr_static(self._kind, self._name).__get__(client, owner)
        if client is not None and hasattr(part, "connect"):
            part.connect = self._injector.warning(f"{self._name}.connect", part.connect)
        return part


# ---- any other client


def _recorded_resource(resource: Any, endpoint: Endpoint, injector: Injector, *, is_async: bool) -> Overlay:
    """Return a resource whose calls are recorded."""
    own = {
        name: recorded_call(getattr(resource, name), endpoint, injector, is_async=is_async)
        for name in METHODS
        if callable(getattr(resource, name, None))
    }
    return Overlay(resource, injector, **own)
