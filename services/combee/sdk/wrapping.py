"""``wrap_openai``: a client of OpenAI's library that is shown the playbook and whose calls become traces.

Duck-typed: OpenAI's library is not imported, and whatever has ``chat.completions.create`` or ``responses.create``
will do.
"""

import copy
import inspect
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from combee.sdk.answers import answer_of, metadata_of
from combee.sdk.default import default_client
from combee.sdk.face import Face
from combee.sdk.learning import CURRENT, Run, awaited, read
from combee.sdk.logs import logger
from combee.sdk.reader import Ask
from combee.sdk.shapes import CHAT, RESPONSES, Shape
from combee.sdk.streams import Recorded
from combee.sdk.transport import LATEST
from combee.sdk.view import PlaybookView

C = TypeVar("C")

METHODS = ("create", "parse")


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One call under way: to whom it is told when the answer is there."""

    run: Run
    is_solo: bool
    """No block is around it: the call is a run of its own."""
    shape: Shape
    arguments: Mapping[str, Any]

    def answered(self, reply: Any) -> None:
        """Record the answer; whatever a library puts there, the agent gets it."""
        try:
            model = str(self.arguments.get("model") or "")
            messages = self.shape.asked(self.arguments)
            self.run.recorded(messages, answer_of(reply), metadata_of(reply, model))
            if self.is_solo:
                self.run.finish(None)
        except Exception:  # noqa: BLE001 - the agent's call went well, and must not fail here
            logger.exception("a call could not be recorded; its answer is passed on")


@dataclass(frozen=True, slots=True, kw_only=True)
class Injector:
    """What is done before and after a call."""

    client: Face
    ask: Ask | None = field(default=None)

    def begin(
        self, shape: Shape, view: PlaybookView | None, arguments: dict[str, Any]
    ) -> tuple[dict[str, Any], Call | None]:
        """Return the arguments with the playbook in front, and the call to record; None: nobody asked for it."""
        run = CURRENT.get()
        if run is None and view is None:
            return arguments, None
        chosen = run or Run(self.client, view)  # type: ignore[arg-type]  # one of the two is there
        given = shape.held(arguments)
        call = Call(run=chosen, is_solo=run is None, shape=shape, arguments=given)
        return shape.shown(given, chosen.playbook.prompt()), call

    def playbook(self) -> PlaybookView | None:
        """Return what a call outside any block is shown; only what was never read is waited for."""
        if self.ask is None or CURRENT.get() is not None:
            return None
        return read(self.client, self.ask)

    async def awaited_playbook(self) -> PlaybookView | None:
        """See ``playbook``."""
        if self.ask is None or CURRENT.get() is not None:
            return None
        return await awaited(self.client, self.ask)


def recording(
    original: Callable[..., Any], shape: Shape, injector: Injector, *, is_async: bool
) -> Callable[..., Any]:
    """Return ``original`` with the playbook injected and its answer recorded."""

    def finished(reply: Any, call: Call | None, arguments: Mapping[str, Any]) -> Any:
        if call is None:
            return reply
        if arguments.get("stream"):
            return Recorded(reply, shape.gathered(), call.answered)
        call.answered(reply)
        return reply

    def sync(*args: Any, **arguments: Any) -> Any:
        changed, call = injector.begin(shape, injector.playbook(), arguments)
        return finished(original(*args, **changed), call, arguments)

    async def asynchronous(*args: Any, **arguments: Any) -> Any:
        changed, call = injector.begin(shape, await injector.awaited_playbook(), arguments)
        reply: Awaitable[Any] | Any = original(*args, **changed)
        return finished(await reply if inspect.isawaitable(reply) else reply, call, arguments)

    return asynchronous if is_async else sync


class Instead:
    """Another object with some attributes of its own."""

    def __init__(self, original: Any, **own: Any) -> None:
        self.__dict__.update(own, _original=original)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._original, name)


def wrap_openai(
    client: C,
    *,
    playbook: str | None = None,
    label: str = LATEST,
    fallback: str = "",
    combee: Face | None = None,
) -> C:
    """Return a copy of an ``OpenAI`` or ``AsyncOpenAI`` client whose completions and responses learn; streams too.

    Inside ``learning`` calls belong to that run and are shown its playbook. Outside each call is a run of its own
    under ``playbook``; without ``playbook`` it passes untouched. ``combee``: None is the default client.

    Raises
    ------
    TypeError
        If ``client`` has neither ``chat.completions.create`` nor ``responses.create``.
    """
    chat, responses = getattr(client, "chat", None), getattr(client, "responses", None)
    completions = getattr(chat, "completions", None)
    can = [one for one in (completions, responses) if callable(getattr(one, "create", None))]
    if not can:
        raise TypeError(
            "wrap_openai needs a client with chat.completions.create or responses.create, such as openai.OpenAI()"
        )
    ask = Ask(name=playbook, label=label, fallback=fallback) if playbook else None
    injector = Injector(client=combee or default_client(), ask=ask)
    is_async = hasattr(type(client), "__aenter__")
    wrapped: Any = copy.copy(client)
    if completions in can:
        wrapped.chat = Instead(chat, completions=_recorded(completions, CHAT, injector, is_async=is_async))
    if responses in can:
        wrapped.responses = _recorded(responses, RESPONSES, injector, is_async=is_async)
    return wrapped  # type: ignore[no-any-return]  # a copy of what was given


def _recorded(resource: Any, shape: Shape, injector: Injector, *, is_async: bool) -> Instead:
    """Return a resource whose calls are recorded."""
    own = {
        name: recording(getattr(resource, name), shape, injector, is_async=is_async)
        for name in METHODS
        if callable(getattr(resource, name, None))
    }
    return Instead(resource, **own)
