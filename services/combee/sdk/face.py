"""What both faces of the client share: everything that never waits."""

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from uuid import uuid4

from pydantic import ValidationError

from combee.sdk.connecting import connecting
from combee.sdk.counts import Delivery
from combee.sdk.engine import Engine, Options
from combee.sdk.environment import resolved
from combee.sdk.redaction import Redact, Redactor
from combee.sdk.transport import Transport
from combee_schemas.base import Shown
from combee_schemas.reflection import Reflection
from combee_schemas.trace import Trace

WAIT_S = 2.0
FLUSH_S = 10.0


class Face:
    """A connection to one deployment; ``Client`` and ``AsyncClient`` add what waits.

    Parameters
    ----------
    address
        Kafka's bootstrap servers (``host:port,…``) or a gateway's URL (``http://…``; needs ``combee[http]``).
        None: ``COMBEE_GATEWAY_URL``, else ``COMBEE_BOOTSTRAP_SERVERS``.
    prefix
        The topic prefix (Kafka only). None: ``COMBEE_TOPIC_PREFIX``, else ``combee``.
    api_key
        The gateway's bearer key. None: ``COMBEE_GATEWAY_KEY``.
    security
        aiokafka's ``security_protocol``, ``sasl_*``, ``ssl_context``. None: ``COMBEE_SECURITY_PROTOCOL`` and so on.
    transport
        Instead of an address: makes a transport, such as ``lambda: memory`` of a ``MemoryTransport``.
    redact
        What every text passes before it leaves. None: nothing is taken out.
    max_messages, max_bytes
        How much is buffered while it cannot be sent; more is dropped and counted.
    cache_dir
        A folder for playbooks that were used, so that the next start has them without a broker.

    Raises
    ------
    FatalError
        If there is no address, or the gateway's library is missing; later, nothing raises.
    """

    def __init__(
        self,
        address: str | None = None,
        *,
        prefix: str | None = None,
        api_key: str | None = None,
        security: Mapping[str, Any] | None = None,
        transport: Callable[[], Transport] | None = None,
        redact: Redact | bool | None = True,
        max_messages: int = 10_000,
        max_bytes: int = 32 << 20,
        cache_dir: Path | str | None = None,
    ) -> None:
        if transport is None:
            where = resolved(address, prefix=prefix, api_key=api_key, security=security)
            transport = connecting(where)
        self._engine = Engine(
            Options(
                connect=transport,
                max_messages=max_messages,
                max_bytes=max_bytes,
                redact=Redactor() if redact is True else redact or None,
                cache_dir=Path(cache_dir) if cache_dir else None,
            )
        )

    @property
    def engine(self) -> Engine:
        """The core, for what is built on a client."""
        return self._engine

    @property
    def counts(self) -> Delivery:
        """What became of everything that was handed over so far."""
        return self._engine.counts()

    def publish(self, reflection: Reflection | None = None, **fields: Any) -> str:
        """Hand over a reflection, or the fields of one (``playbook``, ``key_insight``, …); return its id.

        Never waits and never raises: what is no reflection (its id is empty), or finds no room, is dropped and
        counted.
        """
        if isinstance(reflection, Reflection):
            self._engine.publish(reflection)
            return reflection.reflection_id
        if reflection is not None:
            self._engine.drop(f"it is no reflection but a {type(reflection).__name__}")
            return ""
        fields.setdefault("reflection_id", f"r-{uuid4().hex}")
        made = self._made(Reflection, fields)
        if made is not None:
            self._engine.publish(made)
        return str(fields["reflection_id"])

    def trace(
        self,
        playbook: str,
        task: str,
        *,
        trajectory: str = "",
        answer: str = "",
        feedback: str = "",
        target: str | None = None,
        shown: Shown | None = None,
        agent: str = "",
        metadata: Mapping[str, str] | None = None,
        trace_id: str | None = None,
        outcome_within_s: float = 0.0,
    ) -> str:
        """Hand over what one run left behind; return its id. Never waits, never raises.

        With ``outcome_within_s`` (s) the trace is kept back so long, for ``outcome`` to complete it.
        """
        chosen = trace_id or f"t-{uuid4().hex}"
        fields: dict[str, Any] = {
            "trace_id": chosen,
            "playbook": playbook,
            "task": task,
            "trajectory": trajectory,
            "answer": answer,
            "feedback": feedback,
            "target": target,
            "shown": shown,
            "agent": agent,
            "metadata": dict(metadata) if isinstance(metadata, Mapping) else metadata or {},
        }
        made = self._made(Trace, fields)
        if made is None:
            return chosen
        if isinstance(outcome_within_s, int | float) and outcome_within_s > 0:
            self._engine.hold(made, outcome_within_s)
        else:
            self._engine.publish(made)
        return chosen

    def outcome(
        self,
        trace_id: str,
        feedback: str = "",
        *,
        success: bool | None = None,
        target: str | None = None,
        answer: str | None = None,
    ) -> None:
        """Say how a run ended that ``trace(…, outcome_within_s=…)`` told of. Never waits, never raises."""
        told = {"feedback": told_of(feedback, success=success), "target": target, "answer": answer}
        self._engine.outcome(str(trace_id), {name: str(value) for name, value in told.items() if value})

    def _made(self, kind: type[Any], fields: Mapping[str, Any]) -> Any:
        try:
            return kind(**{"created_at_ms": time.time_ns() // 1_000_000, **fields})
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            where = ".".join(map(str, first["loc"]))
            self._engine.drop(f"it is no {kind.type}: {where}: {first['msg']}")
            return None


def told_of(feedback: str, *, success: bool | None) -> str:
    """Return feedback that says whether the run succeeded, where that is known."""
    verdict = "" if success is None else "The run succeeded." if success else "The run failed."
    return " ".join(str(part) for part in (verdict, feedback) if part)
