"""The embedding port on an OpenAI-compatible server: several texts per request, retried for a limited time."""

import time
from collections.abc import Sequence
from functools import partial
from itertools import islice

from combee.adapters.asking.errors import CallFailedError
from combee.adapters.asking.retry import RetryPolicy, tried
from combee.adapters.openai.connection import Connection
from combee.adapters.openai.names import Server
from combee.adapters.openai.wire import Vectors
from combee.adapters.ports import CombeeError, Embedded, ModelCall, OnModelCall
from combee_schemas.base import Usage

MIB = 1 << 20
TEXTS = 64
"""Maximum number of texts per request. At 3,072 dimensions their vectors are about 4 MB of JSON."""
MAX_REPLY_BYTES = 16 * MIB
MAX_CHARS = 8_000
"""Maximum number of characters sent of a text: embedding models read some 8,000 tokens, many only 512."""


class OpenAIEmbedder:
    """The ``Embedder`` port on any OpenAI-compatible server; ``model`` is the name that the server knows."""

    def __init__(
        self,
        *,
        model: str,
        server: Server,
        timeout_s: float = 30.0,
        give_up_after_s: float = 20.0,
        first_wait_s: float = 0.5,
        on_call: OnModelCall = lambda _call: None,
    ) -> None:
        self._name = model
        self._connection = Connection(server, timeout_s=timeout_s, max_reply_bytes=MAX_REPLY_BYTES)
        # A permanent error is not retried, as its wait reaches the limit: the caller works without embeddings.
        self._policy = RetryPolicy(
            first_wait_s=first_wait_s,
            max_wait_s=give_up_after_s,
            permanent_wait_s=give_up_after_s,
            give_up_after_s=give_up_after_s,
        )
        self._on_call = on_call

    async def embed(self, texts: Sequence[str]) -> Embedded:
        """Return a vector for each text.

        Raises
        ------
        TransientError, PoisonError
            If the server returns no vectors.
        """
        vectors: list[Sequence[float]] = []
        usage, rest = Usage(), iter(texts)
        # A space stands for an empty text, which OpenAI refuses.
        while batch := [text[:MAX_CHARS] or " " for text in islice(rest, TEXTS)]:
            answer = await tried(self._policy, partial(self._asked, batch))
            vectors += answer.vectors
            usage += answer.usage
        return Embedded(vectors=vectors, usage=usage)

    async def _asked(self, texts: Sequence[str], attempt: int) -> Vectors:
        began_s = time.monotonic()
        try:
            answer = await self._connection.embed(self._name, texts)
        except CombeeError as error:
            self._on_call(
                ModelCall(
                    outcome="failed" if isinstance(error, CallFailedError) else "refused",
                    seconds=time.monotonic() - began_s,
                    attempt=attempt,
                )
            )
            raise
        usage = answer.usage.model_copy(update={"retries": attempt - 1})
        self._on_call(
            ModelCall(outcome="answered", seconds=usage.seconds, attempt=attempt, tokens_in=usage.tokens_in)
        )
        return Vectors(vectors=answer.vectors, usage=usage)

    async def close(self) -> None:
        """Drop connections."""
        await self._connection.close()
