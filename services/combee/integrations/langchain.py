"""LangChain and LangGraph: middleware for ``create_agent`` that shows the playbook and records each run."""

import json
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Annotated, Any, NotRequired, Unpack
from uuid import uuid4

from langchain.agents.middleware import AgentMiddleware, AgentState, ModelRequest, ModelResponse
from langchain.agents.middleware.types import PrivateStateAttr
from langchain_core.messages import SystemMessage
from langgraph.errors import GraphBubbleUp

from combee.sdk.instrumentation import Instrumentation, OpenRuns, Options, in_front, metadata_of
from combee.sdk.learning import Run, last_question, tool_calls_text
from combee.sdk.logs import guarded
from combee.sdk.view import PlaybookView

ROLES = {"human": "user", "ai": "assistant"}


class RunState(AgentState):
    """The agent's state, with the id of the run, because another process may resume a checkpoint."""

    combee_run: NotRequired[Annotated[str, PrivateStateAttr]]  # type: ignore[valid-type] # it is a TypedDict


class CombeeMiddleware(AgentMiddleware):
    """Shows an agent its playbook and records its runs; put it first, so that an error that reaches it ends the run.

    Parameters
    ----------
    playbook
        The playbook that learns. None: only runs inside ``combee.learning`` learn.
    options
        ``combee.sdk.instrumentation.Options``: label, fallback, caller, client, budget, callback at a run's end.
    """

    state_schema = RunState

    def __init__(self, playbook: str | None = None, **options: Unpack[Options]) -> None:
        super().__init__()
        self._instrumentation = Instrumentation.of(playbook, **options)
        self._runs = OpenRuns(self._instrumentation)

    # ---- an agent's run

    def before_agent(self, state: Mapping[str, Any], runtime: Any) -> dict[str, Any] | None:  # noqa: ARG002
        """Begin a run."""
        return self._begin(state, self._instrumentation.playbook())

    async def abefore_agent(self, state: Mapping[str, Any], runtime: Any) -> dict[str, Any] | None:  # noqa: ARG002
        """See ``before_agent``."""
        return self._begin(state, await self._instrumentation.awaited_playbook())

    def after_agent(self, state: Mapping[str, Any], runtime: Any) -> None:  # noqa: ARG002
        """Hand the run over."""
        run_id = state.get("combee_run")
        run = self._runs.get(run_id)
        with guarded("a run could not be recorded"):
            if run is not None:
                run.record(map(as_message, state["messages"]))
        self._runs.end(run_id)

    async def aafter_agent(self, state: Mapping[str, Any], runtime: Any) -> None:
        """See ``after_agent``."""
        self.after_agent(state, runtime)

    # ---- its calls

    def wrap_model_call(
        self, request: ModelRequest, handler: Callable[[ModelRequest], ModelResponse]
    ) -> ModelResponse:
        """Show the playbook and record the answer."""
        run_id = request.state.get("combee_run")
        run = self._runs.get(run_id) or self._resumed(request, self._instrumentation.playbook())
        if run is None:
            return handler(request)
        with self._ended_by_error(run_id):
            response = handler(self._with_playbook(run, request))
        self._record(run, response, request)
        return response

    async def awrap_model_call(
        self, request: ModelRequest, handler: Callable[[ModelRequest], Awaitable[ModelResponse]]
    ) -> ModelResponse:
        """See ``wrap_model_call``."""
        run_id = request.state.get("combee_run")
        run = self._runs.get(run_id) or self._resumed(request, await self._instrumentation.awaited_playbook())
        if run is None:
            return await handler(request)
        with self._ended_by_error(run_id):
            response = await handler(self._with_playbook(run, request))
        self._record(run, response, request)
        return response

    def wrap_tool_call(self, request: Any, handler: Callable[[Any], Any]) -> Any:
        """Record a tool's error that ends the run; results arrive with the messages of the next call."""
        with self._ended_by_error(request.state.get("combee_run"), request.tool_call):
            return handler(request)

    async def awrap_tool_call(self, request: Any, handler: Callable[[Any], Awaitable[Any]]) -> Any:
        """See ``wrap_tool_call``."""
        with self._ended_by_error(request.state.get("combee_run"), request.tool_call):
            return await handler(request)

    # ---- shared by sync and async

    def _begin(self, state: Mapping[str, Any], view: PlaybookView | None) -> dict[str, Any] | None:
        run_id = f"t-{uuid4().hex}"
        task = last_question(map(as_message, state["messages"]))
        return {"combee_run": run_id} if self._open(run_id, view, task) else None

    def _resumed(self, request: ModelRequest, view: PlaybookView | None) -> Run | None:
        """Return a run for a call whose run began in another process; its messages contain the whole run."""
        run_id = request.state.get("combee_run")
        return self._open(run_id, view, last_question(map(as_message, request.messages))) if run_id else None

    def _open(self, run_id: str, view: PlaybookView | None, task: str) -> Run | None:
        run = self._runs.open(run_id, view, task=task)
        if run is not None and not run.is_block:
            run.trace_id = run_id
        return run

    def _with_playbook(self, run: Run, request: ModelRequest) -> ModelRequest:
        with guarded("a call is shown no playbook"):
            messages = [as_message(message) for message in request.messages]
            run.record(messages)
            prompt = run.prompt(last_question(messages), self._instrumentation.budget_tokens)
            if prompt:
                system = request.system_message.content if request.system_message else None
                return request.override(system_message=SystemMessage(content=in_front(prompt, system)))
        return request

    def _record(self, run: Run, response: ModelResponse, request: ModelRequest) -> None:
        with guarded("a call could not be recorded"):
            messages = [message for message in response.result if message.type == "ai"]
            for message in messages:
                said = as_message(message)
                run.step(said["role"], said["content"])
                run.answer = said["content"]
                run.metadata.update(call_metadata(message, request.model))

    @contextmanager
    def _ended_by_error(
        self, run_id: str | None, tool_call: Mapping[str, Any] | None = None
    ) -> Iterator[None]:
        try:
            yield
        except GraphBubbleUp:
            raise  # the graph's own signals: it waits for a person, or continues elsewhere
        except BaseException as error:
            run = self._runs.get(run_id)
            if run is not None and tool_call is not None:
                run.step("tool", f"{tool_call.get('name')} failed with {type(error).__name__}: {error}")
            self._runs.end(run_id, error)
            raise


def as_message(message: Any) -> dict[str, str]:
    """Return a message of LangChain as role and text, with its tool calls."""
    said = message.content if isinstance(message.content, str) else _joined(message.content)
    calls = [
        (str(call["name"]), json.dumps(call["args"], ensure_ascii=False, default=str))
        for call in getattr(message, "tool_calls", ())
    ]
    return {"role": ROLES.get(message.type, message.type), "content": tool_calls_text(said, calls)}


def _joined(parts: Sequence[Any]) -> str:
    """Return the text of content in parts; images and sound are named by type, and calls are recorded separately."""
    texts = []
    for part in parts:
        if isinstance(part, str):
            texts.append(part)
        elif part.get("type") not in ("tool_use", "tool_call", "function_call"):
            texts.append(str(part.get("text") or f"[{part.get('type', 'part')}]"))
    return "\n".join(texts)


def call_metadata(message: Any, model: Any) -> Mapping[str, str]:
    """Return the attributes of the call that a message answers."""
    metadata, usage = message.response_metadata or {}, message.usage_metadata or {}
    return metadata_of(
        request_model=getattr(model, "model_name", None) or getattr(model, "model", None),
        response_model=metadata.get("model_name"),
        finish_reasons=metadata.get("finish_reason"),
        input_tokens=usage.get("input_tokens"),
        output_tokens=usage.get("output_tokens"),
    )
