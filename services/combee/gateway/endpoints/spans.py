"""``POST /v1/otlp/v1/traces``: agents' spans over OTLP, whose runs become traces.

The path is below ``/v1/``, so that keys, body limits and the request log apply. Spans wait in memory for their root
span; the request that completes a run is answered once Kafka has acknowledged the run.
"""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Sequence
from http import HTTPStatus
from importlib.util import find_spec
from typing import Annotated

import structlog
from fastapi import APIRouter, Depends, Request, Response

from combee.adapters.ports import TransientError
from combee.core.formats.files import is_name
from combee.core.spans.gathering import MAX_SPANS, Gathering, SpanGroup, SpanRun
from combee.core.spans.reading import playbook_named, trace_from
from combee.core.spans.span import Span
from combee.gateway.access.access import allowed
from combee.gateway.access.keys import Caller
from combee.gateway.context import Context
from combee.gateway.endpoints.publishing import TRACES, Publishing
from combee.gateway.problems import Refusal, busy

logger = structlog.get_logger()

PATH = "/v1/otlp/v1/traces"
"""Path of the endpoint; exporters are given the part before ``/v1/traces``, which they add."""
MEDIA = ("application/x-protobuf", "application/json")
TURN_S = 1.0
MAX_REASONS = 10
"""Maximum number of reasons named in an answer or a log line: each may name another playbook."""
TOO_MANY = f"a trace may have at most {MAX_SPANS} spans that wait for the rest"
NO_PLAYBOOK = (
    "no span at or around the agent's has the attribute combee.playbook, and COMBEE_OTLP_PLAYBOOK is not set"
)


class Receiver:
    """Collects spans and publishes their runs."""

    def __init__(self, context: Context) -> None:
        self._context = context
        limits = context.limits
        self._default = context.settings.gateway.otlp_playbook
        self._publishing = Publishing(context)
        self._gathering: Gathering[Caller] = Gathering(
            most_bytes=limits.spans_waiting_bytes, wait_ms=int(limits.spans_wait_s * 1000)
        )
        self._turn_s = min(TURN_S, limits.spans_wait_s)
        self._watching: asyncio.Task[None] | None = None

    async def take(self, caller: Caller, spans: Sequence[Span]) -> Counter[str]:
        """Receive spans; return the number of rejected ones by reason.

        Raises
        ------
        Refusal
            If too many spans of the key wait, or their runs cannot be published now.
        """
        fitting = self._gathering.fitting(caller, spans)
        if not self._gathering.add(caller, fitting, self._context.clock.now_ms()):
            raise busy("too many spans of this key wait for the rest of their traces")
        rejected = Counter({TOO_MANY: len(spans) - len(fitting)})
        for group in self._gathering.complete(caller, (span.trace_id for span in spans)):
            rejected += await self._publish(group)
        if len(self._gathering) and (self._watching is None or self._watching.done()):
            self._watching = asyncio.create_task(self._watch())
        return rejected

    async def _publish(self, group: SpanGroup[Caller]) -> Counter[str]:
        """Write the runs of a group, which stays waiting until Kafka has acknowledged them."""
        rejected: Counter[str] = Counter()
        # In a thread, because a large group must not delay other requests.
        for run in await asyncio.to_thread(group.runs):
            if reason := await self._published(group.owner, run):
                rejected[reason] += len(run.spans)
        self._gathering.forget(group)
        return rejected

    async def _published(self, caller: Caller, run: SpanRun) -> str:
        """Write a run; return why it was not written, empty if it was."""
        playbook = playbook_named(run) or self._default
        if not is_name(playbook):
            return f"no playbook's name: {playbook[:100]}" if playbook else NO_PLAYBOOK
        trace = await asyncio.to_thread(trace_from, run, playbook)
        if trace is None:
            return "the spans hold no messages: let your instrumentation record contents"
        objects = [trace.model_dump(mode="json")]
        receipt = await self._publishing.publish(TRACES, caller, objects, run.context)
        problem = receipt.items[0].problem
        if problem and problem.status == HTTPStatus.TOO_MANY_REQUESTS:
            raise busy(problem.detail)
        return problem.detail if problem else ""

    async def _watch(self) -> None:
        """Publish the runs of spans that have waited too long, until none waits or the gateway stops."""
        context = self._context
        while len(self._gathering) and not context.stopping.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._turn_s):
                    await context.stopping.wait()
            for group in self._gathering.expired(context.clock.now_ms()):
                await self._give_up(group)
        if left := len(self._gathering):
            logger.warning(
                "spans_lost", spans=left, reason="the gateway stops before the rest of their traces came"
            )

    async def _give_up(self, group: SpanGroup[Caller]) -> None:
        if not self._context.keys.holds(group.owner, self._context.clock.now_ms()):
            self._gathering.forget(group)
            return
        try:
            rejected = await self._publish(group)
        except (TransientError, TimeoutError, Refusal):
            return  # tried again a second later
        except Exception as error:  # noqa: BLE001 - the runs of other keys wait behind this one
            logger.error("spans_lost", spans=len(group.spans), reason=f"{type(error).__name__}: {error}")
            self._gathering.forget(group)
            return
        if rejected:
            reasons = [reason for reason, _ in rejected.most_common(MAX_REASONS)]
            logger.warning("spans_rejected", spans=rejected.total(), reasons=reasons)


def router(context: Context) -> APIRouter:
    """Return the endpoint; the OpenAPI document omits it, because OTLP documents it."""
    routes = APIRouter()
    receiver = Receiver(context)
    most = context.limits.max_body_bytes
    decoding = asyncio.Lock()  # one request at a time: in memory it is many times as large
    is_installed = _has("opentelemetry.proto")

    @routes.post(PATH, include_in_schema=False)
    async def receive(
        request: Request, caller: Annotated[Caller, Depends(allowed("reflections:write"))]
    ) -> Response:
        if not is_installed:
            raise Refusal(HTTPStatus.NOT_IMPLEMENTED, 'install "combee[otel]" where the gateway runs')
        from combee.gateway import otlp  # noqa: PLC0415 - the extra's libraries

        media = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if media not in MEDIA:
            raise Refusal(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, f"send {' or '.join(MEDIA)}")
        encoding = request.headers.get("content-encoding", "").strip().lower()
        body = otlp.inflated(await request.body(), encoding, most)
        async with decoding:
            spans, invalid = await asyncio.to_thread(otlp.decoded, body, media)
        rejected = await receiver.take(caller, spans)
        rejected += Counter({"spans without valid ids": invalid})
        message = "; ".join(f"{count} spans: {reason}" for reason, count in rejected.most_common(MAX_REASONS))
        return Response(otlp.answer(media, rejected.total(), message), media_type=media)

    return routes


def _has(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False
