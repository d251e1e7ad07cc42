"""The language model port on an OpenAI-compatible server: limits, retries, one re-ask, parsing."""

import asyncio

from combee.adapters.asking.drain import Drain
from combee.adapters.asking.limits import Limits
from combee.adapters.asking.replies import TooLongError, UnusableError, read_reply, read_small_reply
from combee.adapters.asking.retry import RetryPolicy
from combee.adapters.openai.caller import Caller, ModelHealth, Question
from combee.adapters.openai.connection import Connection
from combee.adapters.openai.names import NO_AZURE, Azure, resolve_model
from combee.adapters.openai.wire import Message, RequestOptions
from combee.adapters.ports import CutOffError, OnModelCall, PoisonError, PromptTooLongError
from combee_schemas.base import Usage
from combee_schemas.model import Prompt, Reply

MIB = 1 << 20
BAD_REPLY_CHARS = 2000


class UnusableReplyError(PoisonError):
    """The reply stayed unusable after the re-ask; ``usage`` is the cost of both calls."""

    def __init__(self, text: str, usage: Usage) -> None:
        super().__init__(text)
        self.usage = usage


class OpenAIModel:
    """The ``LanguageModel`` port on any OpenAI-compatible server; one instance per event loop."""

    def __init__(
        self,
        *,
        model: str,
        base_url: str | None = None,
        api_key: str | None = None,
        azure: Azure = NO_AZURE,
        timeout_s: float = 120.0,
        concurrency: int = 8,
        requests_per_minute: int | None = None,
        tokens_per_minute: int | None = None,
        max_output_tokens: int | None = None,
        max_reply_bytes: int = 4 * MIB,
        temperature: float | None = 0.0,
        seed: int | None = None,
        give_up_after_s: float | None = None,
        first_wait_s: float = 0.5,
        max_wait_s: float = 30.0,
        permanent_wait_s: float = 30.0,
        on_call: OnModelCall = lambda _call: None,
    ) -> None:
        name, server = resolve_model(model, base_url, api_key, azure)
        self._name = name
        self._health = ModelHealth()
        self._drain = Drain()
        self._connection = Connection(server, timeout_s=timeout_s, max_reply_bytes=max_reply_bytes)
        self._caller = Caller(
            connection=self._connection,
            limits=Limits(
                concurrency=concurrency,
                requests_per_minute=requests_per_minute,
                tokens_per_minute=tokens_per_minute,
            ),
            options=RequestOptions(
                model=name, max_output_tokens=max_output_tokens, temperature=temperature, seed=seed
            ),
            policy=RetryPolicy(
                first_wait_s=first_wait_s,
                max_wait_s=max_wait_s,
                permanent_wait_s=permanent_wait_s,
                give_up_after_s=give_up_after_s,
            ),
            health=self._health,
            on_call=on_call,
        )

    def __repr__(self) -> str:
        return f"OpenAIModel(model={self._name!r}, host={self._connection.host!r})"

    @property
    def answering(self) -> bool:
        """Whether the last call was answered."""
        return self._health.trouble is None

    @property
    def trouble(self) -> str | None:
        """Why calls fail now, with the remedy if there is one; None while the model answers."""
        return self._health.trouble

    @property
    def refusal(self) -> str | None:
        """Why the server refuses permanently (key, quota, name), with the remedy; None while it does not."""
        return self._health.trouble if self._health.permanent else None

    def request(self, prompt: Prompt) -> str:
        """Return the SHA-256 of the request that a prompt becomes; a re-ask is another one."""
        return self._caller.request_hash(prompt, _first(prompt))

    async def ask(self, prompt: Prompt, *, priority: int = 0) -> Reply:
        """Return a usable reply; a higher priority gets a free slot first.

        Raises
        ------
        PoisonError
            If the reply stays unusable after one re-ask, or the server refuses the prompt.
        PromptTooLongError
            If the prompt is too long for the model.
        CutOffError
            If the reply is cut off, after one re-ask, too.
        TransientError
            If ``give_up_after_s`` is set and has passed.
        DrainingError
            If the drain started before the call did.
        """
        spent, problem, messages, is_cut_off = Usage(), "", _first(prompt), False
        async with self._drain.scope(begun=prompt.begun) as scope:
            for re_asks in (0, 1):
                question = Question(prompt=prompt, messages=messages, priority=priority, scope=scope)
                try:
                    answer = await self._caller.answer(question)
                except PromptTooLongError:
                    if not re_asks:
                        raise
                    break  # the prompt is too long only together with the unusable reply
                except PoisonError as refused:
                    refused.usage += spent
                    raise
                spent += answer.usage.model_copy(update={"re_asks": re_asks})
                try:
                    body = read_small_reply(answer, prompt)
                    if body is None:
                        # In a thread: the repair of a hostile reply must not stop the heartbeats.
                        body = await asyncio.to_thread(read_reply, answer, prompt)
                except UnusableError as unusable:
                    problem, is_cut_off = str(unusable), isinstance(unusable, TooLongError)
                    messages = [*_first(prompt), *_second(answer.text, problem)]
                else:
                    return Reply(body=body, usage=spent, request=answer.request)
                if not re_asks:
                    scope.wait()
        text = f"the model's reply stayed unusable: {problem}"
        if is_cut_off:
            cut_off = CutOffError(text)
            cut_off.usage = spent
            raise cut_off
        raise UnusableReplyError(text, spent)

    def drain(self) -> None:
        """Start no further call: questions without a call under way raise DrainingError."""
        self._drain.start()

    async def close(self) -> None:
        """Drop connections."""
        await self._connection.close()


def _first(prompt: Prompt) -> list[Message]:
    return [{"role": "system", "content": prompt.system}, {"role": "user", "content": prompt.user}]


def _second(reply: str, problem: str) -> list[Message]:
    # Some chat templates require alternating turns, and some servers require text in each.
    return [
        {"role": "assistant", "content": reply[:BAD_REPLY_CHARS] or "(no text)"},
        {
            "role": "user",
            "content": f"This reply cannot be used: {problem}. Answer again, as asked at first.",
        },
    ]
