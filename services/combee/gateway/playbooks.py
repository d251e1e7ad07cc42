"""Playbooks that callers may see: the newest version, a numbered one, or a label's."""

import math
from collections.abc import Mapping
from http import HTTPStatus

from combee.adapters import clock
from combee.adapters.ports import FatalError
from combee.core.commands import absence, is_deleted, no_version
from combee.core.gate.canary import is_over, place_of, terms_of, version_for
from combee.core.gate.gate import label_read
from combee.core.log.live.picture import Picture
from combee.core.playbook.pausing import pause_of
from combee.core.playbook.versions import misfit
from combee.gateway.access.access import check_touch
from combee.gateway.access.keys import Caller
from combee.gateway.context import Context
from combee.gateway.problems import Refusal, not_found, unavailable
from combee.process.settings.methods import method
from combee_schemas.base import playbook_of
from combee_schemas.playbook import CANDIDATE, LATEST, NO_LABEL, PRODUCTION, Label, Playbook


def check_current(context: Context) -> None:
    """Refuse to answer from an incomplete view, which would deny existing playbooks."""
    if not context.knows():
        raise unavailable("the gateway is still reading the playbooks")


def newest(context: Context, name: str) -> Playbook | None:
    """Return the newest version; None if there is none, or the playbook is deleted."""
    playbook = context.playbooks.latest(name)
    return playbook if playbook.version and not is_deleted(playbook) else None


def newest_by_name(context: Context) -> dict[str, Playbook]:
    """Return the newest version of each playbook and branch, by name in order."""
    playbooks_by_name = {
        playbook.name: playbook
        for playbook in context.playbooks.view.all().values()
        if not is_deleted(playbook)
    }
    return dict(sorted(playbooks_by_name.items()))


def lines_of(context: Context, name: str) -> dict[str, Playbook]:
    """Return the newest version of a playbook and of each of its branches, by name."""
    return {
        line.name: line
        for line in context.playbooks.view.all().values()
        if playbook_of(line.name) == name and not is_deleted(line)
    }


def labels_of(context: Context, name: str) -> dict[str, Label]:
    """Return a playbook's labels by name."""
    return {pointer.label: pointer for pointer in context.labels.all().values() if pointer.playbook == name}


async def absent(context: Context, name: str) -> Refusal:
    """Return the refusal for a missing playbook, with any waiting input that will create it."""
    picture, now_ms = await context.live.seen(), context.clock.now_ms()
    current = context.playbooks.latest(name)
    reason = absence(current)
    waiting, in_flight, until_ms = picture.windows.count(name), picture.in_flight(name), None
    reasons = [
        f"batch {batch.sequence} with {counted(batch.reflections, 'reflection')} is in progress"
        for batch in in_flight
    ]
    if waiting:
        until_ms = closes_ms(context, picture, name)
        due = "closes" if until_ms > now_ms else "was to close"
        size = picture.batch_size(name)
        of = "" if waiting > size else f" of {size}"
        reasons.append(
            f"its window has {counted(waiting, 'reflection')}{of} and {due} when full or at"
            f" {moment(until_ms)}; POST /v1/playbooks/{name}/flush closes it now"
        )
    if not reasons and (traces := context.traced[name]):
        reasons.append(
            f"{counted(traces, 'trace')} {'was' if traces == 1 else 'were'} received here; each becomes a reflection"
            " when a model has answered"
        )
    if not reasons:
        return not_found(reason)
    after_s = max(1, math.ceil(((until_ms or now_ms) - now_ms) / 1000))
    return Refusal(
        HTTPStatus.NOT_FOUND,
        f"{reason}{'; ' if is_deleted(current) else ' yet: '}{'; '.join(reasons)}",
        headers={"Retry-After": str(after_s)},
        waiting=waiting,
        until_ms=until_ms,
    )


def closes_ms(context: Context, picture: Picture, name: str) -> int:
    """Return the latest closing time of a playbook's window, by this process's settings."""
    since_ms = picture.windows.since_ms(name) or 0
    return since_ms + int(context.settings.batch.max_wait_s * 1000)


def held(context: Context, name: str) -> str:
    """Return why a playbook's waiting reflections are held back, by this process's settings; empty if not known."""
    orders = {line: context.playbooks.latest(line).paused for line in (name, playbook_of(name))}
    if (pause := pause_of(orders, context.clock.now_ms())) is not None:
        return f"learning is paused {pause.reason} until {moment(pause.until_ms)}; {pause.remedy} ends that"
    batch = context.settings.batch
    try:
        holds = method(batch.method).HOLDS
    except FatalError:  # the method need not be installed where the gateway runs
        return ""
    return misfit(context.playbooks.latest(name), holds, batch.method) or ""


def moment(at_ms: int) -> str:
    """Return a time in ISO 8601."""
    return f"{clock.moment(at_ms, 'T')}Z"


def counted(number: int, what: str) -> str:
    """Return a count with its noun in singular or plural."""
    return f"{number} {what}{'' if number == 1 else 's'}"


def _pointed_at(name: str, label: str, labels: Mapping[str, Label]) -> int:
    if label not in labels:
        raise not_found(f"{name} has no label {label}")
    if not labels[label].version:
        waiting = labels.get(CANDIDATE)
        judged = f": version {waiting.version} is being judged" if waiting else ""
        raise not_found(f"no version of {name} has passed its gate yet{judged}")
    return labels[label].version


def tried_on(context: Context, name: str, whose: str) -> tuple[str, int | None]:
    """Return a caller's group in the playbook's canary and its version, None for no version."""
    terms = terms_of(labels_of(context, name).get(CANDIDATE))
    if not whose or terms is None or is_over(terms, context.clock.now_ms()):
        return "", None
    place = place_of(name, terms, whose)
    return place, version_for(place, terms)


async def find_version(
    context: Context, caller: Caller, name: str, version: int | None = None, label: str | None = LATEST
) -> Playbook:
    """Return one version of a playbook; without version and label the one that agents read.

    Raises
    ------
    Refusal
        If it is missing or outside the caller's name spaces.
    """
    check_touch(caller, name)
    check_current(context)
    latest = newest(context, name)
    if latest is None:
        raise await absent(context, name)
    if version is None:
        known = labels_of(context, name)
        label = label_read(label or NO_LABEL, known.get(PRODUCTION), latest)
        if label != LATEST:
            version = _pointed_at(name, label, known)
    if version in {None, latest.version}:
        return latest
    past = await context.history.exactly(name, version or 0, latest)
    if past is None:
        raise not_found(no_version(latest, version or 0))
    return past
