"""LiteLLM: a callback, for its library and its proxy, that shows calls a playbook and records them.

LiteLLM asks prompt managers for the messages of calls with a ``prompt_id``, such as a playbook's name. Async calls,
which include all of the proxy's, get the callback's own playbook if they have no ``prompt_id``.
"""

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, Final, Unpack

from litellm.integrations.custom_logger import CustomLogger
from litellm.integrations.custom_prompt_management import CustomPromptManagement

from combee.sdk.instrumentation import Instrumentation, OpenRuns, Options
from combee.sdk.learning import CURRENT, Run, last_question
from combee.sdk.logs import LogOnce, guarded
from combee.sdk.openai.calls import CHAT, answer_text, call_metadata
from combee.sdk.reading import PlaybookRef
from combee.sdk.view import PlaybookView
from combee_schemas.playbook import NO_LABEL

CHAT_CALLS: Final = ("completion", "acompletion")
MAX_PROMPTS = 256
"""Maximum number of playbook texts kept to recognise calls; more than the versions in use at a time."""


class CombeeLogger(CustomPromptManagement):
    """Shows calls a playbook and records each as a run; inside ``combee.learning`` all calls are one run.

    ``litellm.callbacks = [CombeeLogger()]``, then ``litellm.completion(…, prompt_id="support/refunds")``;
    ``prompt_label`` and ``prompt_version`` choose as in ``Client.playbook``. A run's id is LiteLLM's call id.

    Parameters
    ----------
    playbook
        The playbook of calls without ``prompt_id`` (async, the router's, the proxy's). None: these are unchanged.
    options
        ``combee.sdk.instrumentation.Options``: label, fallback, caller, client, budget, callback at a run's end.
    """

    def __init__(self, playbook: str | None = None, **options: Unpack[Options]) -> None:
        CustomLogger.__init__(self)
        super().__init__()
        self._instrumentation = Instrumentation.of(playbook, **options)
        self._label = options.get("label", NO_LABEL)
        self._fallback = options.get("fallback", "")
        self._caller = options.get("caller", "")
        self._runs = OpenRuns(self._instrumentation)
        self._views: OrderedDict[str, PlaybookView] = OrderedDict()
        """Views shown to calls by their text, the only link at a call's end."""
        self._once = LogOnce()

    # ---- the playbook

    @property
    def integration_name(self) -> str:
        """The callback's name in LiteLLM."""
        return "combee"

    def should_run_prompt_management(self, prompt_id: str | None, *args: Any, **options: Any) -> bool:
        """Whether a call names a playbook."""
        del args, options
        return isinstance(prompt_id, str) and bool(prompt_id)

    async def async_pre_call_deployment_hook(
        self, kwargs: dict[str, Any], call_type: Any
    ) -> dict[str, Any] | None:
        """Return the default playbook's name for a call without one."""
        run, ref = CURRENT.get(), self._instrumentation.ref
        name = run.playbook.name if run is not None else ref.name if ref is not None else None
        is_chat = getattr(call_type, "value", call_type) in CHAT_CALLS
        return {**kwargs, "prompt_id": name} if is_chat and name and not kwargs.get("prompt_id") else None

    def get_chat_completion_prompt(
        self,
        model: str,
        messages: list[Any],
        non_default_params: dict[str, Any],
        prompt_id: str | None,
        *args: Any,
        prompt_label: str | None = None,
        prompt_version: int | None = None,
        **options: Any,
    ) -> tuple[str, list[Any], dict[str, Any]]:
        """Return the messages with the playbook in front, so that providers' prompt caches hit."""
        del args, options
        shown = messages
        with guarded("a call is shown no playbook"):
            prompt = self._prompt(self._ref(prompt_id, prompt_label, prompt_version), last_question(messages))
            if not messages or messages[0].get("content") != prompt:  # not a repeated call of this hook
                shown = CHAT.with_prompt({"messages": messages}, prompt)["messages"]
        return model, shown, non_default_params

    def _ref(self, name: str | None, label: str | None = None, version: int | None = None) -> PlaybookRef:
        return PlaybookRef(
            name=name or "",
            label=label or self._label,
            version=version or None,
            fallback=self._fallback,
            caller=self._caller,
        )

    def _prompt(self, ref: PlaybookRef, question: str) -> str:
        run, budget = CURRENT.get(), self._instrumentation.budget_tokens
        if run is not None:
            view, prompt = run.playbook, run.prompt(question, budget)
        else:
            view = self._instrumentation.client.read(ref).nearest(question, budget)
            prompt = view.prompt()
        if prompt:
            self._views[prompt] = view
            self._views.move_to_end(prompt)
        if len(self._views) > MAX_PROMPTS:
            self._views.popitem(last=False)
        return prompt

    # ---- recording

    def log_pre_api_call(self, model: str, messages: Any, kwargs: dict[str, Any]) -> None:
        """Begin a run here, because only the caller's context shows which run a call belongs to."""
        del model
        with guarded("a call could not be recorded"):
            name = (kwargs.get("litellm_params") or {}).get("prompt_id")
            if kwargs.get("call_type") not in CHAT_CALLS or self._is_uncovered(name):
                return
            call_id, run = kwargs["litellm_call_id"], CURRENT.get()
            if run is None:
                view = self._views.get(_first_text(messages)) or self._known(self._ref(name))
                run = self._runs.open(call_id, view)
                if run is not None:
                    run.trace_id = str(call_id)
            elif self._runs.get(call_id) is None:
                self._runs.open(call_id, None)
                run.expect()

    def _is_uncovered(self, name: str | None) -> bool:
        """Whether a call stays unchanged; a call that should not is logged once."""
        is_wanted = CURRENT.get() is not None or self._instrumentation.ref is not None
        if name is None and is_wanted:
            self._once.warn(
                "prompt_id",
                "LiteLLM shows a playbook to synchronous calls only with its name: pass prompt_id=…",
            )
        return name is None and CURRENT.get() is None

    def _known(self, ref: PlaybookRef) -> PlaybookView:
        return self._instrumentation.client.read(ref, timeout_s=0.0)

    def log_success_event(
        self, kwargs: dict[str, Any], response_obj: Any, start_time: Any, end_time: Any
    ) -> None:
        """Record a call, a stream as a whole."""
        del start_time, end_time
        run = self._runs.forget(kwargs.get("litellm_call_id"))
        if run is None:
            return
        with guarded("a call could not be recorded"):
            messages = CHAT.messages(kwargs)
            own = messages[1:] if _first_text(messages) in self._views else messages
            metadata = call_metadata(response_obj, str(kwargs.get("model") or ""))
            run.recorded(own, answer_text(response_obj), metadata)
        self._settle(run)

    def log_failure_event(
        self, kwargs: dict[str, Any], response_obj: Any, start_time: Any, end_time: Any
    ) -> None:
        """Drop a failed call, which has no answer to learn from; an enclosing block records the error."""
        del response_obj, start_time, end_time
        run = self._runs.forget(kwargs.get("litellm_call_id"))
        if run is not None and run.is_block:
            run.settle()

    def _settle(self, run: Run) -> None:
        if run.is_block:
            run.settle()
        else:
            self._instrumentation.end(run, None)

    async def async_log_success_event(
        self, kwargs: dict[str, Any], response_obj: Any, start_time: Any, end_time: Any
    ) -> None:
        """See ``log_success_event``."""
        self.log_success_event(kwargs, response_obj, start_time, end_time)

    async def async_log_failure_event(
        self, kwargs: dict[str, Any], response_obj: Any, start_time: Any, end_time: Any
    ) -> None:
        """See ``log_failure_event``."""
        self.log_failure_event(kwargs, response_obj, start_time, end_time)


def _first_text(messages: Any) -> str:
    """Return the first message's text, which is the playbook if there is one."""
    first: Mapping[str, Any] = messages[0] if messages and isinstance(messages[0], Mapping) else {}
    return str(first.get("content") or "")
