"""OpenAI Agents SDK: instructions that begin with the playbook, and hooks that record each run."""

import inspect
import weakref
from collections.abc import Callable
from typing import Any, Unpack

from agents import Agent, ModelResponse, RunContextWrapper, RunHooks, Tool

from combee.sdk.instrumentation import Instrumentation, OpenRuns, Options, in_front
from combee.sdk.learning import Run, content, last_question
from combee.sdk.logs import guarded
from combee.sdk.openai.calls import RESPONSES, answer_text, call_metadata
from combee.sdk.view import PlaybookView

Instructions = str | Callable[[RunContextWrapper[Any], Agent[Any]], Any] | None
NO_END = "The run ended without an answer: an error, a limit or a guardrail stopped it."


class CombeeHooks(RunHooks[Any]):
    """Shows agents their playbook and records their runs, from the first call to the final answer.

    ``Agent(instructions=hooks.instructions("Be exact."))`` and ``Runner.run(agent, …, hooks=hooks)``; one object
    serves any number of runs and agents. The library does not report errors: a run that ends without an answer is
    handed over when its context is deleted; inside ``combee.learning`` its exception is recorded.

    Parameters
    ----------
    playbook
        The playbook that learns. None: only runs inside ``combee.learning`` learn.
    options
        ``combee.sdk.instrumentation.Options``: label, fallback, caller, client, budget, callback at a run's end.
    """

    def __init__(self, playbook: str | None = None, **options: Unpack[Options]) -> None:
        self._instrumentation = Instrumentation.of(playbook, **options)
        self._runs = OpenRuns(self._instrumentation)

    def instructions(self, own: Instructions = None) -> Callable[[Any, Any], Any]:
        """Return instructions of the playbook followed by the agent's own, a text or a function."""

        async def with_playbook(context: RunContextWrapper[Any], agent: Agent[Any]) -> str:
            said = own(context, agent) if callable(own) else own
            text = await said if inspect.isawaitable(said) else said
            prompt = ""
            with guarded("a call is shown no playbook"):
                run = await self._run(context)
                if run is not None:
                    messages = RESPONSES.messages({"input": context.turn_input})
                    prompt = run.prompt(last_question(messages), self._instrumentation.budget_tokens)
            return str(in_front(prompt, text))

        return with_playbook

    # ---- hooks

    async def on_llm_start(
        self,
        context: RunContextWrapper[Any],
        agent: Agent[Any],
        system_prompt: str | None,
        input_items: list[Any],
    ) -> None:
        """Record the new messages of the conversation."""
        del agent, system_prompt
        with guarded("a call could not be recorded"):
            run = await self._run(context)
            if run is not None:
                messages = _messages(input_items)
                run.task = run.task or last_question(messages)
                run.record(messages)

    async def on_llm_end(
        self, context: RunContextWrapper[Any], agent: Agent[Any], response: ModelResponse
    ) -> None:
        """Record the answer."""
        with guarded("a call could not be recorded"):
            run = self._runs.get(id(context.usage))
            if run is not None:
                for message in _messages(response.output):
                    run.step(message["role"], content(message))
                run.answer = answer_text(response)
                model = getattr(agent.model, "model", agent.model)
                run.metadata.update(call_metadata(response, str(model or "")))

    async def on_tool_end(
        self, context: RunContextWrapper[Any], agent: Agent[Any], tool: Tool, result: object
    ) -> None:
        """Record a tool's result."""
        del agent, tool
        run = self._runs.get(id(context.usage))
        if run is not None:
            run.step("function_call_output", str(result))

    async def on_handoff(
        self, context: RunContextWrapper[Any], from_agent: Agent[Any], to_agent: Agent[Any]
    ) -> None:
        """Record the handoff to another agent."""
        run = self._runs.get(id(context.usage))
        if run is not None:
            run.step("handoff", f"{from_agent.name} hands over to {to_agent.name}")

    async def on_agent_end(self, context: RunContextWrapper[Any], agent: Agent[Any], output: Any) -> None:
        """Hand the run over with its final answer."""
        del agent
        run = self._runs.get(id(context.usage))
        if run is not None:
            run.answer = str(output)
        self._runs.end(id(context.usage))

    async def _run(self, context: RunContextWrapper[Any]) -> Run | None:
        """Return the run of a context; contexts of one run share their usage object."""
        usage = context.usage
        run = self._runs.get(id(usage))
        if run is not None:
            return run
        view: PlaybookView | None = await self._instrumentation.awaited_playbook()
        run = self._runs.open(id(usage), view)
        if run is not None:
            # The program may end first, and a run not handed over by then is lost.
            weakref.finalize(usage, self._runs.abandon, id(usage), NO_END).atexit = False
        return run


def _messages(items: Any) -> list[Any]:
    """Return the items of a conversation with content; reasoning has at most a summary."""
    return [message for message in RESPONSES.messages({"input": items}) if message["content"]]
