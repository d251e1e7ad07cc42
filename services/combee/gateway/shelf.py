"""Playbooks as callers may see them: the newest, a version, the one a label points at."""

from http import HTTPStatus

from combee.gateway.access import check_touch
from combee.gateway.context import Context
from combee.gateway.keys import Caller
from combee.gateway.problems import Refusal, not_found, unavailable
from combee.gateway.values import LATEST
from combee_schemas.playbook import Label, Playbook

DELETED = "delete"


def check_current(context: Context) -> None:
    """Refuse to answer from a view that has never been whole: it would deny what exists."""
    if not context.knows():
        raise unavailable("the gateway is still reading the playbooks")


def newest(context: Context, name: str) -> Playbook | None:
    """Return the newest version; None if there is none, or the playbook is deleted."""
    found = context.playbooks.latest(name)
    return found if found.version and found.origin != DELETED else None


def everything(context: Context) -> dict[str, Playbook]:
    """Return the newest version of each, by name in order."""
    found = {one.name: one for one in context.playbooks.view.all().values() if one.origin != DELETED}
    return dict(sorted(found.items()))


def labels_of(context: Context, name: str) -> dict[str, Label]:
    """Return a playbook's labels by name."""
    return {one.label: one for one in context.labels.all().values() if one.playbook == name}


async def wanted(
    context: Context, caller: Caller, name: str, version: int | None = None, label: str | None = None
) -> Playbook:
    """Return one version of a playbook, the newest by default.

    Raises
    ------
    Refusal
        If it is not this caller's, or not there.
    """
    check_touch(caller, name)
    check_current(context)
    latest = newest(context, name)
    if latest is None:
        raise not_found(f"there is no playbook {name}")
    if version is not None and label is not None:
        raise Refusal(HTTPStatus.BAD_REQUEST, "give a version or a label, not both")
    if label not in {None, LATEST}:
        found = labels_of(context, name).get(label or "")
        if found is None:
            raise not_found(f"{name} has no label {label}")
        version = found.version
    if version in {None, latest.version}:
        return latest
    past = await context.history.exactly(name, version or 0)
    if past is None:
        raise not_found(f"{name} has no version {version}; the newest is {latest.version}")
    return past
