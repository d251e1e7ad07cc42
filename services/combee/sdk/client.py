"""The clients of agents and tools: a blocking one and an async one."""

import asyncio
import inspect
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from difflib import get_close_matches
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self
from uuid import uuid4

from pydantic import ValidationError

from combee.adapters.ports import FatalError
from combee.sdk.address import resolved_address, transport_factory
from combee.sdk.core import ClientCore
from combee.sdk.logs import logger
from combee.sdk.publishing import Delivery
from combee.sdk.reading import PlaybookRef
from combee.sdk.redaction import Redact, Redactor
from combee.sdk.transport import Transport, UnconfiguredTransport
from combee.sdk.view import PlaybookView
from combee_schemas.base import Shown, Source, named_score, playbook_of
from combee_schemas.outcome import Outcome
from combee_schemas.playbook import NO_LABEL
from combee_schemas.reflection import Reflection
from combee_schemas.trace import Trace

WAIT_S = 2.0
FLUSH_S = 10.0


class BaseClient(ClientCore):
    """A connection to one deployment; ``Client`` and ``AsyncClient`` add the waiting methods.

    Parameters
    ----------
    address
        Kafka's bootstrap servers (``host:port,…``) or a gateway's URL (``http://…``; needs ``combee[http]``).
        None: ``COMBEE_GATEWAY_URL``, else ``COMBEE_BOOTSTRAP_SERVERS``, else the only ``combee up`` that runs on this
        machine (in ``COMBEE_DATA_DIR`` if that is set), which is logged.
    prefix
        The topic prefix (Kafka only). None: ``COMBEE_TOPIC_PREFIX``, else ``combee``.
    api_key
        The gateway's bearer key. None: ``COMBEE_GATEWAY_KEY``.
    security
        aiokafka's ``security_protocol``, ``sasl_*``, ``ssl_context``. None: ``COMBEE_SECURITY_PROTOCOL`` and so on.
    source, source_secret
        The declared source of published messages, and the secret that authenticates it (Kafka only: a gateway uses
        the key). None: ``COMBEE_SOURCE``, ``COMBEE_SOURCE_SECRET``.
    transport
        A factory of a transport instead of an address, such as ``lambda: memory`` with a ``MemoryTransport``.
    redact
        A function that redacts every text before it is sent. None: texts are sent unchanged.
    max_messages, max_bytes
        Maximum size of the buffer of unsent messages; further ones are dropped and counted.
    cache_dir
        A folder for used playbooks, so that the next start has them without a broker.

    Raises
    ------
    FatalError
        If there is no address, several deployments run here, or the gateway's library is missing.
    """

    def __init__(
        self,
        address: str | None = None,
        *,
        prefix: str | None = None,
        api_key: str | None = None,
        security: Mapping[str, Any] | None = None,
        source: str | None = None,
        source_secret: str | None = None,
        transport: Callable[[], Transport] | None = None,
        redact: Redact | bool | None = True,
        max_messages: int = 10_000,
        max_bytes: int = 32 << 20,
        cache_dir: Path | str | None = None,
    ) -> None:
        self.address = ""
        """The deployment's address: the gateway's or Kafka's; empty with a transport of your own."""
        if transport is None:
            where = resolved_address(
                address,
                prefix=prefix,
                api_key=api_key,
                security=security,
                source=source,
                source_secret=source_secret,
            )
            self.address = where.url
            transport = transport_factory(where)
        super().__init__(
            transport,
            max_messages=max_messages,
            max_bytes=max_bytes,
            redact=Redactor() if redact is True else redact or None,
            cache_dir=Path(cache_dir) if cache_dir else None,
        )

    def publish(self, reflection: Reflection | None = None, **fields: Any) -> str:
        """Hand over a reflection, or the fields of one (``playbook``, ``key_insight``, …); return its id.

        Never waits. An invalid reflection, or one without room in the buffer, is dropped and counted; its returned id
        is empty.

        Raises
        ------
        TypeError
            If a field is named that reflections do not have. It is the only error, and no value causes it.
        """
        _check_names(fields)
        if reflection is None:
            reflection = self._validated(Reflection, {"reflection_id": f"r-{uuid4().hex}", **fields})
        elif not isinstance(reflection, Reflection):
            self.drop(f"it is not a reflection but a {type(reflection).__name__}")
            return ""
        return reflection.reflection_id if reflection is not None and self.hand_over(reflection) else ""

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
        bullet_ids: Sequence[str] = (),
        score: Mapping[str, float] | float | None = None,
        success: bool | None = None,
        source: Source | None = None,
        agent: str = "",
        metadata: Mapping[str, str] | None = None,
        trace_id: str | None = None,
        outcome_within_s: float = 0.0,
    ) -> str:
        """Hand over the trace of one run; return its id. Never waits, never raises.

        With ``outcome_within_s`` (s) the trace is held at most this long, for ``outcome`` to complete it.
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
            "bullet_ids": bullet_ids,
            "score": {} if score is None else named_score(score),
            "success": success,
            "source": source,
            "agent": agent,
            "metadata": dict(metadata) if isinstance(metadata, Mapping) else metadata or {},
        }
        made = self._validated(Trace, fields)
        if made is None:
            return chosen
        if isinstance(outcome_within_s, int | float) and outcome_within_s > 0:
            self.hold(made, outcome_within_s)
        else:
            self.hand_over(made)
        return chosen

    def outcome(
        self,
        trace_id: str,
        feedback: str = "",
        *,
        success: bool | None = None,
        target: str | None = None,
        answer: str | None = None,
        score: Mapping[str, float] | float | None = None,
        playbook: str | None = None,
        shown: Shown | None = None,
        bullet_ids: Sequence[str] = (),
        caller: str = "",
        source: Source | None = None,
    ) -> None:
        """Report the outcome of a run. Never waits, never raises.

        A trace of ``trace(…, outcome_within_s=…)`` that is still held is completed. Otherwise, with ``playbook``, the
        outcome is sent alone and counted for the version of ``shown``, or of the trace with this id; no trace is
        needed. Its texts are then unused, because nothing is learned from an outcome alone.
        """
        said: dict[str, object] = {
            "score": {} if score is None else named_score(score),
            "success": None if success is None else bool(success),
            "shown": shown,
            "bullet_ids": bullet_ids,
            "source": source,
        }
        # Without a playbook only the other fields are needed, validated.
        outcome = self._validated(
            Outcome, {**said, "run_id": str(trace_id), "playbook": playbook or "any", "caller": caller}
        )
        if outcome is None:
            return
        texts = {"feedback": feedback_text(feedback, success=success), "target": target, "answer": answer}
        changes: dict[str, object] = {name: str(value) for name, value in texts.items() if value}
        changes |= {name: value for name in said if (value := getattr(outcome, name)) not in (None, {}, ())}
        self.complete(str(trace_id), changes, outcome if playbook else None)

    def _validated(self, kind: type[Any], fields: Mapping[str, Any]) -> Any:
        made = {"created_at_ms": time.time_ns() // 1_000_000, **fields}
        if isinstance(line := made.get("playbook"), str):
            made["playbook"] = playbook_of(line)  # a branch learns from its playbook's input
        try:
            return kind(**made)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            where = ".".join(map(str, first["loc"]))
            self.drop(f"it is not a valid {kind.type}: {where}: {first['msg']}")
            return None


def _check_names(fields: Mapping[str, object]) -> None:
    """Refuse a field that reflections do not have, as Python refuses an argument."""
    for name in fields.keys() - Reflection.model_fields.keys():
        alike = get_close_matches(name, Reflection.model_fields, 1)
        hint = f"; did you mean {alike[0]!r}?" if alike else ""
        raise TypeError(f"publish() got an unexpected keyword argument {name!r}{hint}")


def feedback_text(feedback: str, *, success: bool | None) -> str:
    """Return the feedback, with a sentence on whether the run succeeded if that is known."""
    verdict = "" if success is None else "The run succeeded." if success else "The run failed."
    return " ".join(str(part) for part in (verdict, feedback) if part)


def _call_back(callback: Callable[[PlaybookView], Any], view: PlaybookView) -> None:
    try:
        callback(view)
    except Exception:  # noqa: BLE001 - a user's code; the next update must still come
        logger.exception("an on_update callback failed; the next update calls it again")


class Client(BaseClient):
    """A deployment, for programs without an event loop. Use it as a context manager, or call ``close``.

    >>> with Client("127.0.0.1:9092") as combee:              # doctest: +SKIP
    ...     combee.playbook("support/refunds", fallback="Be brief.").render()
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._callbacks = ThreadPoolExecutor(max_workers=1, thread_name_prefix="combee-update")

    def playbook(
        self,
        name: str,
        *,
        label: str = NO_LABEL,
        version: int | None = None,
        fallback: str = "",
        caller: str = "",
        timeout_s: float = WAIT_S,
    ) -> PlaybookView:
        """Return a playbook from memory; wait at most ``timeout_s`` (s) for one that is not known yet.

        ``version`` has precedence over ``label``. ``caller`` names the reader, such as an agent or a user: only named
        callers may be shown a candidate that is tried on a share of the callers. It never raises: without an
        answer it returns the last known text, from memory or disk, else ``fallback``.
        """
        ref = PlaybookRef(name=name, label=label, version=version, fallback=fallback, caller=caller)
        return self.read(ref, timeout_s)

    def on_update(
        self, name: str, callback: Callable[[PlaybookView], object], *, label: str = NO_LABEL
    ) -> Callable[[], None]:
        """Call ``callback`` with the present version and each newer one, in order, on a separate thread.

        Returns a function that ends it. Errors of the callback are logged. A deleted playbook is an empty fallback.
        """
        return self.subscribe(name, label, lambda view: _submit(self._callbacks, callback, view))

    def ready(self, timeout_s: float = WAIT_S) -> bool:
        """Wait until all playbooks that existed at the start are known; False after ``timeout_s`` (s)."""
        return self._wait(self._known_all(timeout_s), lambda: False)

    def flush(self, timeout_s: float = FLUSH_S) -> Delivery:
        """Wait at most ``timeout_s`` (s) until all buffered messages are acknowledged; return the counts."""
        return self._wait(self._delivered(timeout_s), lambda: self.counts)

    def close(self, timeout_s: float = FLUSH_S) -> Delivery:
        """Deliver buffered messages within ``timeout_s`` (s) and disconnect; return the counts.

        Where nothing answers it gives up after about 2 s: ``waiting`` counts what was not sent.
        """
        counts = self.shut_down(timeout_s)
        self._callbacks.shutdown(wait=False, cancel_futures=True)
        return counts

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _submit(
    executor: ThreadPoolExecutor, callback: Callable[[PlaybookView], object], view: PlaybookView
) -> None:
    try:
        executor.submit(_call_back, callback, view)
    except RuntimeError:
        return  # closed meanwhile


class AsyncClient(BaseClient):
    """A deployment, for programs with an event loop. Use it with ``async with``."""

    async def playbook(
        self,
        name: str,
        *,
        label: str = NO_LABEL,
        version: int | None = None,
        fallback: str = "",
        caller: str = "",
        timeout_s: float = WAIT_S,
    ) -> PlaybookView:
        """See ``Client.playbook``."""
        ref = PlaybookRef(name=name, label=label, version=version, fallback=fallback, caller=caller)
        return await self.awaited_read(ref, timeout_s)

    def on_update(
        self, name: str, callback: Callable[[PlaybookView], Any], *, label: str = NO_LABEL
    ) -> Callable[[], None]:
        """As ``Client.on_update``; the callback, plain or async, runs on the subscriber's loop."""
        loop = asyncio.get_running_loop()
        running: set[asyncio.Task[None]] = set()

        async def call(view: PlaybookView) -> None:
            try:
                if inspect.isawaitable(outcome := callback(view)):
                    await outcome
            except Exception:  # noqa: BLE001 - see above
                logger.exception("an on_update callback failed; the next update calls it again")

        def begin(view: PlaybookView) -> None:
            task = loop.create_task(call(view))
            running.add(task)
            task.add_done_callback(running.discard)

        def notify(view: PlaybookView) -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(begin, view)

        return self.subscribe(name, label, notify)

    async def ready(self, timeout_s: float = WAIT_S) -> bool:
        """See ``Client.ready``."""
        return await self._awaited(self._known_all(timeout_s), lambda: False)

    async def flush(self, timeout_s: float = FLUSH_S) -> Delivery:
        """See ``Client.flush``."""
        return await self._awaited(self._delivered(timeout_s), lambda: self.counts)

    async def close(self, timeout_s: float = FLUSH_S) -> Delivery:
        """See ``Client.close``."""
        return await asyncio.to_thread(self.shut_down, timeout_s)

    async def __aenter__(self) -> Self:
        self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


_default_lock: Final = threading.Lock()
_default: Final[list[Client]] = []


def default_client() -> Client:
    """Return the client of ``Client()``, made at the first call; without a deployment it warns and sends nothing."""
    with _default_lock:
        if not _default:
            try:
                _default.append(Client())
            except FatalError as error:
                # An exception would break an agent that merely lacks an environment variable.
                why = str(error)
                logger.warning("nothing is learned and no playbook is shown: %s", why)
                _default.append(Client(transport=lambda: UnconfiguredTransport(why), max_messages=100))
        return _default[0]
