"""Kill a process at each of its writes, start it again, and look at what the log holds in the end."""

from collections.abc import Sequence
from contextlib import suppress

import pytest

from combee.log.inspection.audit import audit
from combee_schemas.command import Command
from support import ledger
from support.deployment import ROLES, Deployment
from support.failpoints.points import CrashError, CrashFailpoint
from support.ledger import NAME, lessons, outgoing, reflection
from support.models import LateModel, ScriptedModel

pytestmark = pytest.mark.usefixtures("quick_polls")

COUNT = 10
NUMBERS = range(COUNT)
PUBLISHED = {NAME: [reflection(number) for number in NUMBERS]}
FLUSH = Command(command_id="c", playbook=NAME, kind="flush", through_offset=COUNT - 1)


async def loaded(
    inflight: int = 1,
    *,
    stragglers: bool = False,
    model: ScriptedModel | None = None,
) -> Deployment:
    """Return work for two batches, one after the other, or for three at once; the last is what a flush closes."""
    deployment = Deployment(
        model=model,
        batch_size=9 if inflight == 1 else 4,
        fan_in=32 if stragglers else 2,
        max_inflight_batches=inflight,
        stragglers=stragglers,
    )
    await deployment.log.produce(*map(outgoing, PUBLISHED[NAME]), outgoing(FLUSH))
    return deployment


def settled(deployment: Deployment) -> bool:
    return ledger.applied(deployment.log) == COUNT and not ledger.behind(deployment.log)


def check(deployment: Deployment) -> None:
    ledger.check(deployment.log, PUBLISHED)
    entries = ledger.latest(deployment.log).entries
    assert {entry.content for entry in entries} == lessons(NUMBERS)
    assert all(entry.evidence_count == 1 for entry in entries)


async def points_of(roles: Sequence[str], inflight: int) -> int:
    """Return at how many points a process that runs these services can die."""
    failpoint = CrashFailpoint()
    deployment = await loaded(inflight)
    others = [role for role in ROLES if role not in roles]
    async with deployment.running(others), deployment.running(roles, failpoint=failpoint):
        await deployment.until(lambda: settled(deployment))
    check(deployment)
    return len(failpoint.points)


async def die_once(roles: Sequence[str], inflight: int, at: int) -> None:
    """Run all services; those of ``roles`` share a process that dies at one point and is started again."""
    deployment = await loaded(inflight)
    others = [role for role in ROLES if role not in roles]
    async with deployment.running(others):
        with suppress(CrashError):
            async with deployment.running(roles, failpoint=CrashFailpoint(at)):
                await deployment.until(lambda: settled(deployment))
        begun, recorded = deployment.model.calls, ledger.answered_calls(deployment.log)
        async with deployment.running(roles):
            await deployment.until(lambda: settled(deployment))
    check(deployment)
    lost = begun - recorded if "scan" in roles else 0
    assert deployment.model.calls == ledger.planned_calls(deployment.log) + lost, "a call was paid for twice"


@pytest.mark.parametrize("inflight", [1, 3])
@pytest.mark.parametrize("roles", [ROLES, ("shuffle",), ("scan",), ("publish",)], ids="+".join)
async def test_a_process_killed_at_any_write_loses_nothing_and_repeats_nothing(
    roles: Sequence[str], inflight: int
) -> None:
    points = await points_of(roles, inflight)
    assert points >= 8
    # A part of the points does where all of them have been tried with everything dying at once.
    stride = 1 if (roles, inflight) == (ROLES, 1) else 4
    for at in range(1, points + 1, stride):
        try:
            await die_once(roles, inflight, at)
        except (AssertionError, TimeoutError) as error:
            raise AssertionError(f"killed at point {at} of {points}: {error!r}") from error


@pytest.mark.parametrize("lifetime", [7, 9, 14])
async def test_processes_that_die_again_and_again_still_get_it_done(lifetime: int) -> None:
    deployment = await loaded()
    lives = 0
    while not settled(deployment):
        lives += 1
        assert lives < 60, "no progress"
        with suppress(CrashError):
            async with deployment.running(failpoint=CrashFailpoint(lifetime)):
                await deployment.until(lambda: settled(deployment))
    check(deployment)
    assert lives > 1


async def killed_once(deployment: Deployment, roles: Sequence[str], at: int | None) -> tuple[Deployment, int]:
    """Run all services; those of ``roles`` may die at a point, and begin again. Return their points."""
    others = [role for role in ROLES if role not in roles]
    failpoint = CrashFailpoint(at) if at else CrashFailpoint()
    async with deployment.running(others):
        with suppress(CrashError):
            async with deployment.running(roles, failpoint=failpoint):
                await deployment.until(lambda: settled(deployment))
        async with deployment.running(roles):
            await deployment.until(lambda: settled(deployment))
    check(deployment)
    return deployment, len(failpoint.points)


# ---- with groups that may be left out


async def left_out_and_killed(roles: Sequence[str], at: int | None) -> tuple[Deployment, int]:
    return await killed_once(await loaded(stragglers=True, model=LateModel()), roles, at)


@pytest.mark.parametrize("roles", [ROLES, ("scan",)], ids="+".join)
async def test_a_process_killed_at_any_write_loses_nothing_of_a_group_that_is_left_out(
    roles: Sequence[str],
) -> None:
    undisturbed, points = await left_out_and_killed(roles, None)
    assert points >= 8
    assert ledger.versions(undisturbed.log)[0].usage.left_out, "nothing was left out: this proves nothing"
    for at in range(1, points + 1, 3):
        try:
            deployment, _ = await left_out_and_killed(roles, at)
            report = await audit(deployment.log)
            assert report.good, report.violations
            calls = report.model_calls
            asked = calls.planned + calls.checks - calls.skips + calls.splits + calls.re_asks + calls.hedges
            assert calls.made == asked
            assert deployment.model.most_repeats <= 2, "a call was paid for again and again"
        except (AssertionError, TimeoutError) as error:
            raise AssertionError(f"killed at point {at} of {points}: {error!r}") from error
