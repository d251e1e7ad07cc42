"""The flow of data: lag, dead letters, batches without a version."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from combee.core.log.diagnosis.check import Check
from combee.core.playbook import retention
from combee_schemas.playbook import Playbook

OLD_S = 300.0
NAMED = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupLag:
    """Backlog of one service, and the number of its workers."""

    group: str
    records: int
    oldest_s: float | None
    members: int


def nobody(group: str) -> str:
    """Return the message for a service without workers."""
    return f"no worker of {group} is alive: start 'combee up', or 'combee worker {group}'"


def judge_lag(lag: GroupLag) -> Check:
    """Judge whether a worker handles the backlog."""
    name, group = f"lag of {lag.group}", lag.group
    if not lag.records:
        return Check(name=name, verdict="ok", says=f"nothing waits; workers: {lag.members}")
    age = "" if lag.oldest_s is None else f", the oldest for {lag.oldest_s:.0f} s"
    says = f"{lag.records} records wait{age}; workers: {lag.members}"
    if not lag.members:
        return Check(
            name=name,
            verdict="fail",
            says=says,
            remedy=nobody(group),
        )
    if lag.oldest_s is not None and lag.oldest_s > OLD_S:
        return Check(
            name=name,
            verdict="warn",
            says=says,
            remedy=f"look at the log and /readyz of {group}: it may lack workers, or wait for the model",
        )
    return Check(name=name, verdict="ok", says=says)


STAGES = {"reflected": ("reflect",), "batched": ("shuffle",), "applied": ("scan", "publish")}
"""The stages of a reflection in order, and the services behind them."""
ASKING = frozenset({"reflect", "scan"})


def waited_for(
    left: Mapping[str, int], members: Mapping[str, int], complaints: Mapping[str, Sequence[str]], model: str
) -> str:
    """Return what a stuck run waits for.

    ``left``: number of reflections that have to pass each stage; ``members``: workers per service; ``complaints``:
    problems that workers (``scan-1`` is one of scan) report; ``model``: the model that they ask.
    """
    stage = next((stage for stage in STAGES if left[stage]), "applied")
    roles = STAGES[stage]
    absent = [nobody(role) for role in roles if not members[role]]
    complaining = [
        f"{name}: {line}"
        for name, lines in complaints.items()
        if name.partition("-")[0] in roles
        for line in lines
    ]
    asked = f" and {model}" if ASKING & set(roles) else ""
    why = "; ".join(absent or complaining) or f"{' and '.join(roles)}{asked} are at work, or slow"
    return f"waiting for {left[stage]} to be {stage}: {why}"


def judge_dead_letters(*, total: int, recent: int, reasons: Sequence[str]) -> Check:
    """Judge dead letters: ``recent`` counts the last day's; ``reasons`` are the last ones', without secrets."""
    if not total:
        return Check(name="dead letters", verdict="ok", says="none")
    says = f"{total} in all, {recent} open of the last day"
    if not recent:
        return Check(name="dead letters", verdict="ok", says=says)
    last = f"; the last: {reasons[-1]}" if reasons else ""
    remedy = "see 'combee dlq list', mend the cause, then 'combee dlq retry --all'"
    return Check(name="dead letters", verdict="warn", says=f"{says}{last}", remedy=remedy)


def judge_retention(playbooks: Iterable[Playbook]) -> Check:
    """Judge what became of the reflections of each playbook's last batches."""
    warnings = [
        f"{playbook.name}: {text}" for playbook in playbooks for text in retention.warnings(playbook).values()
    ]
    if not warnings:
        return Check(
            name="retention", verdict="ok", says="no playbook omits much, and models keep what they claim"
        )
    more = f" and {len(warnings) - NAMED} more" if len(warnings) > NAMED else ""
    return Check(
        name="retention",
        verdict="warn",
        says="; ".join(warnings[:NAMED]) + more,
        remedy="see 'combee playbook show NAME'; a smaller COMBEE_BATCH_SIZE, a larger COMBEE_PLAYBOOK_TOKENS or a"
        " stronger model keeps more",
    )


def judge_branches(branches: Mapping[str, str]) -> Check:
    """Judge the open branches, given why each is paused; empty if it is not."""
    if not branches:
        return Check(name="branches", verdict="ok", says="none")
    paused = [f"{line} is paused: {why}" for line, why in branches.items() if why]
    if not paused:
        named = ", ".join(list(branches)[:NAMED]) + (", …" if len(branches) > NAMED else "")
        return Check(name="branches", verdict="ok", says=f"{len(branches)} learn: {named}")
    more = f" and {len(paused) - NAMED} more" if len(paused) > NAMED else ""
    return Check(
        name="branches",
        verdict="warn",
        says="; ".join(paused[:NAMED]) + more,
        remedy="nothing is lost; a higher cap (COMBEE_DAILY_TOKENS, COMBEE_DAILY_COST) lets it go on at once, 'combee"
        " playbook delete NAME@BRANCH' ends it: its playbook and all its branches share the cap",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Unpublished:
    """A batch without a version, and the time since it closed."""

    playbook: str
    sequence: int
    age_s: float


def judge_batches(unpublished: Sequence[Unpublished], *, timeout_s: float, retries: int) -> Check:
    """Judge batches without a version: shuffle emits one again every ``timeout_s``, at most ``retries`` times."""
    late = sorted((batch for batch in unpublished if batch.age_s > timeout_s), key=lambda batch: -batch.age_s)
    if not late:
        return Check(
            name="batches",
            verdict="ok",
            says=f"{len(unpublished)} in flight" if unpublished else "none waits",
        )
    shown = ", ".join(f"{batch.playbook} #{batch.sequence} ({batch.age_s:.0f} s)" for batch in late[:NAMED])
    more = f" and {len(late) - NAMED} more" if len(late) > NAMED else ""
    stuck = late[0].age_s > timeout_s * (retries + 1)
    return Check(
        name="batches",
        verdict="fail" if stuck else "warn",
        says=f"without a version for more than {timeout_s:.0f} s: {shown}{more}",
        remedy="see whether the model answers and scan, shuffle and publish run: shuffle sends the batch"
        " again by itself once they do",
    )
