"""The live status, a batch's tree and the ledger; health and metrics of this process."""

import asyncio
from collections.abc import Callable
from http import HTTPStatus
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Response

from combee.core.log.ledger import Checkpoint, LedgerReport
from combee.core.log.live.values import LiveBatch, Snapshot
from combee.gateway.access.access import allowed, check_sees_all
from combee.gateway.access.keys import Caller
from combee.gateway.context import Context
from combee.gateway.problems import not_found, problems, unavailable
from combee.log.inspection.audit import account
from combee.process.telemetry.health import Page, pages

LEDGER_S = 120.0
KEPT_S = 5.0
"""Seconds for which a ledger report is reused, because reading all topics is expensive."""

Reader = Annotated[Caller, Depends(allowed("playbooks:read"))]
MetricsText = Callable[[], tuple[str, bytes]]


class Status:
    """The endpoints' work."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._auditing = asyncio.Lock()
        self._account: tuple[float, LedgerReport] | None = None
        self._checkpoint: Checkpoint | None = None
        """This process's checkpoint: the first report reads everything, later ones continue."""

    async def status(self, caller: Reader) -> Snapshot:
        """Return the live status: rates and lag per stage, windows, batches, newest versions, dead letters."""
        snapshot = (await self._context.live.seen()).snapshot(self._context.clock.now_ms())
        return snapshot if caller.sees_all else _narrowed(snapshot, caller)

    async def batch(
        self, caller: Reader, batch_id: Annotated[str, Path(min_length=1, max_length=200)]
    ) -> LiveBatch:
        """Return one of the last 50 batches with its tree, node by node."""
        batch = (await self._context.live.seen()).batch(batch_id)
        if batch is None or not caller.may_touch(batch.playbook):
            raise not_found("none of the last 50 batches has this id")
        return batch

    async def ledger(self, caller: Reader) -> LedgerReport:
        """Account for every acknowledged reflection, from the topics alone; the first report reads all of them."""
        check_sees_all(caller)
        try:
            async with asyncio.timeout(LEDGER_S), self._auditing:
                return await self._audited()
        except TimeoutError as error:
            raise unavailable(f"the topics could not be read within {LEDGER_S:.0f} s") from error

    async def _audited(self) -> LedgerReport:
        now_s = self._context.clock.monotonic()
        if self._account is None or now_s - self._account[0] > KEPT_S:
            now_ms = self._context.clock.now_ms()
            read = await account(self._context.log, self._checkpoint, now_ms=now_ms)
            self._checkpoint = read.checkpoint or self._checkpoint
            self._account = self._context.clock.monotonic(), read.report
        return self._account[1]


def _narrowed(snapshot: Snapshot, caller: Caller) -> Snapshot:
    """Return the part of a snapshot that a caller may see; stages hold only counts over all playbooks."""
    playbooks = tuple(playbook for playbook in snapshot.playbooks if caller.may_touch(playbook.name))
    letters = tuple(
        letter
        for letter in snapshot.dead_letters_recent
        if letter.playbook and caller.may_touch(letter.playbook)
    )
    shown = {
        "playbooks": playbooks,
        "playbooks_total": len(playbooks),
        "batches": tuple(batch for batch in snapshot.batches if caller.may_touch(batch.playbook)),
        "dead_letters": len(letters),
        "dead_letters_recent": letters,
    }
    return snapshot.model_copy(update=shown)


def router(context: Context, metrics: MetricsText) -> APIRouter:
    """Return the endpoints; health and metrics are the same as on every worker's port."""
    status, routes = Status(context), APIRouter(tags=["status"])
    add = routes.add_api_route
    add("/v1/status", status.status, response_model=Snapshot, responses=problems())
    add("/v1/batches/{batch_id}", status.batch, response_model=LiveBatch, responses=problems(404))
    add("/v1/ledger", status.ledger, response_model=LedgerReport, responses=problems())
    for path, page in pages(context.health, metrics).items():
        add(path, _shown(page), response_class=Response, responses=_texts(path), name=path.strip("/"))
    return routes


def _shown(page: Callable[[], Page]) -> Callable[[], Response]:
    def shown() -> Response:
        status, kind, body = page()
        return Response(body, status, media_type=kind)

    return shown


def _texts(path: str) -> dict[int | str, dict[str, Any]]:
    text = {"content": {"text/plain": {"schema": {"type": "string"}}}}
    ways: dict[int | str, dict[str, Any]] = {
        HTTPStatus.OK.value: {"description": "Everything is healthy.", **text}
    }
    if path == "/metrics":
        return {200: {"description": "For Prometheus.", **text}, **problems()}
    problem_answers = problems()
    return {**ways, **problem_answers, 503: {"description": "A check has failed; the text names it.", **text}}
