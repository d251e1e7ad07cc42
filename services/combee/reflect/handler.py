"""The reflect service: one trace, one model call, one reflection."""

from typing import Any

from combee.core import identity
from combee.core.methods import ace
from combee.ports import Clock, LanguageModel, Log, Outgoing, PoisonError, Record, TopicPartition
from combee.reflect.reflected import Reflected
from combee.runtime.playbooks import Playbooks
from combee_schemas import topics
from combee_schemas.codec import CodecError, decode, encode
from combee_schemas.model import Reply
from combee_schemas.playbook import Entry
from combee_schemas.reflection import BulletTag, Reflection
from combee_schemas.trace import Trace

TRACES = topics.TRACES.name
MAX_FIELD_CHARS = 8_000
"""A reflection's five texts together stay well below the record's cap."""

TAGS = {"helpful", "harmful", "neutral"}
TEXTS = ("reasoning", "error_identification", "root_cause_analysis", "correct_approach", "key_insight")


class ReflectHandler:
    """At least once: the reflection's id follows from the trace's, so a repeat is dropped by shuffle."""

    service = "reflect"
    topics = (TRACES,)
    bounded_topics = frozenset({TRACES})

    def __init__(self, log: Log, model: LanguageModel, clock: Clock) -> None:
        self._log = log
        self._model = model
        self._clock = clock
        self._reflected = Reflected()
        self.playbooks = Playbooks(log)

    async def assigned(self, starts: dict[TopicPartition, int]) -> None:
        """See Handler: reflections that are in the log already are not asked for again."""
        await self._reflected.restore(self._log, starts)

    def drain(self) -> None:
        """See Handler."""
        self._model.drain()

    def poisoned(self, record: Record) -> tuple[str, str]:
        """See Handler."""
        try:
            trace = decode(record.value, Trace)
        except CodecError:
            return "", ""
        return trace.trace_id, trace.playbook

    async def handle(self, record: Record) -> None:
        """See Handler."""
        trace = decode(record.value, Trace)
        reflection_id = identity.reflection_id(trace.trace_id)
        async with self._reflected.only_once(reflection_id) as known:
            if not known:
                reflection = await self._reflect(trace, reflection_id)
                await self._log.produce(
                    Outgoing(
                        topic=topics.REFLECTIONS.name,
                        key=trace.playbook.encode(),
                        value=encode(reflection),
                    )
                )

    async def _reflect(self, trace: Trace, reflection_id: str) -> Reflection:
        shown = self._shown(trace)
        reply = await self._model.ask(ace.reflect_prompt(trace, shown))
        return read_reflection(trace, reflection_id, reply, shown, self._clock.now_ms())

    def _shown(self, trace: Trace) -> list[Entry]:
        """Return the entries the agent had, as far as the newest version still has them."""
        wanted = frozenset(trace.shown.entry_ids) if trace.shown else frozenset[str]()
        return [entry for entry in self.playbooks.latest(trace.playbook).entries if entry.id in wanted]


def read_reflection(
    trace: Trace, reflection_id: str, reply: Reply, shown: list[Entry], now_ms: int
) -> Reflection:
    """Return the reflection in a reflector's reply; tags of entries nobody showed are left out.

    Raises
    ------
    PoisonError
        If the reply holds no insight at all.
    """
    texts = {name: _text(reply.body.get(name)) for name in TEXTS}
    if not any(texts.values()):
        raise PoisonError("the reflector's reply is empty")
    return Reflection(
        reflection_id=reflection_id,
        playbook=trace.playbook,
        **texts,
        bullet_tags=_tags(reply.body.get("bullet_tags"), {entry.id for entry in shown}),
        trace_id=trace.trace_id,
        shown=trace.shown,
        usage=reply.usage,
        created_at_ms=now_ms,
    )


def _text(found: object) -> str:
    """Return a model's text, cut, and such that UTF-8 can hold it (JSON escapes can break that)."""
    return str(found or "").encode(errors="replace").decode()[:MAX_FIELD_CHARS]


def _tags(found: Any, shown: set[str]) -> tuple[BulletTag, ...]:
    items = [item for item in found if isinstance(item, dict)] if isinstance(found, list) else []
    tags = {str(item.get("id")): str(item.get("tag")).lower() for item in items}
    return tuple(
        BulletTag.model_validate({"id": entry_id, "tag": tag})
        for entry_id, tag in tags.items()
        if entry_id in shown and tag in TAGS
    )
