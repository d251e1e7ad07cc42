"""A model whose process can die just before a call or just after its answer came."""

from combee.adapters.failpoints.fuse import Fuse
from combee.ports import LanguageModel
from combee_schemas.model import Prompt, Reply


class MortalModel:
    """The ``LanguageModel`` port as one process sees it."""

    def __init__(self, inner: LanguageModel, fuse: Fuse) -> None:
        self._inner = inner
        self._fuse = fuse
        self.drain = inner.drain
        self.close = inner.close

    async def ask(self, prompt: Prompt, *, priority: int = 0) -> Reply:
        self._fuse.burn("before ask")
        reply = await self._inner.ask(prompt, priority=priority)
        self._fuse.burn("after ask")
        return reply
