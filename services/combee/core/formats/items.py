"""Items to learn from: read from lines, identified by their reflection."""

from collections.abc import Callable, Iterable

from combee.core.formats.intake import Item, LineError, Sample, Unknown, read_line
from combee.core.names.identity import derived_ids, identity_of
from combee.core.names.sources import Signer
from combee_schemas.base import Message
from combee_schemas.codec import CodecError, encode
from combee_schemas.reflection import Reflection


def read_items(
    lines: Iterable[str],
    playbook: str,
    on_bad_line: Callable[[int, str], None],
    ignored: dict[str, Unknown] | None = None,
) -> tuple[list[Item], int]:
    """Return the usable items and the number of rejected lines; bad lines are reported and skipped."""
    items: list[Item] = []
    rejected = 0
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            item = read_line(line, playbook, ignored)
            if isinstance(item, Message):
                encode(item)
            items.append(item)
        except (LineError, CodecError) as error:
            rejected += 1
            on_bad_line(number, str(error))
    return items, rejected


def own_id(item: Item) -> str:
    """Return the id under which an item was given."""
    return item.reflection_id if isinstance(item, Reflection) else item.trace_id


def learned_id(item: Item, signer: Signer | None = None) -> str:
    """Return the id of an item's reflection: its identity, if its producer signs it."""
    if isinstance(item, Reflection):
        return identity_of(item.reflection_id, _owner(item, signer))
    return derived_ids(item.playbook, item.trace_id, _owner(item, signer))[0]


def unproven_ids(items: Iterable[Item], signer: Signer | None) -> dict[str, str]:
    """Return the ids of signed items on a deployment that does not check proofs: see Tracker."""
    ids = ((learned_id(item), learned_id(item, signer)) for item in items)
    return {plain: own for plain, own in ids if plain != own}


def unvouched_ids(items: Iterable[Item], signer: Signer | None) -> dict[str, str]:
    """Return the ids of signed traces' reflections if *reflect* may not vouch for them: see Tracker."""
    ids = (
        derived_ids(item.playbook, item.trace_id, _owner(item, signer))
        for item in items
        if not isinstance(item, Reflection)
    )
    return {unvouched: own for own, *others in ids for unvouched in others}


def _owner(item: Item, signer: Signer | None) -> str:
    return signer.owner_of(None if isinstance(item, Sample) else item.source) if signer else ""
