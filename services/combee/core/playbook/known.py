"""Known reflections: evidence for an entry that has the same content already; pure.

The model may claim it in other words, and code checks the claim; code itself recognises an identical wording. A claim
in other words is a guess, since the entry may say more than the reflection. It therefore supports no proposed entry.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from combee.core.playbook.derived import once_per_version
from combee.core.playbook.echo import was_shown
from combee.core.playbook.probation import is_active
from combee.core.text.figures import conflicting
from combee.core.text.similarity.lessons import index_of, same_lesson
from combee.core.text.similarity.overlap import Overlap
from combee_schemas.playbook import Playbook
from combee_schemas.reflection import Reflection
from combee_schemas.scan import Echo, Known, Operation, Seen

PLAUSIBLE = 0.25
"""Share of the lighter of the two texts, item and entry, that the other must contain.

Of 16 paraphrases of entries that a real model learned on AppWorld (318 of them) 15 reach it, and 2 % of the claims
that name another entry do; of claims that name another one of 50 Formula lessons 7 %, of 64 built-in ones 2 %
(`benchmarks/similarity.py`)."""
CLAIMED_TEXTS = ("key_insight", "correct_approach")
"""Fields with a reflection's advice; the other fields are about its run."""

Claims = Mapping[int, str]
"""Item number → the entry with the same content."""


def plausible(base: Playbook, claims: Claims, texts: Sequence[Sequence[str]]) -> dict[int, str]:
    """Return the plausible claims: the entry exists, and the item's text overlaps with it, without other figures.

    A claim about a proposed entry must be the same lesson. ``texts[n - 1]`` are the texts of item n.
    """
    if not claims:
        return {}
    overlap = _overlap_of(base)
    contents = {entry.id: entry.content for entry in base.entries}
    proposed = {entry.id for entry in base.entries if not is_active(entry)}

    def may_say(text: str, entry_id: str) -> bool:
        if entry_id in proposed:
            return same_lesson(contents[entry_id], text)
        return overlap.contained(text, entry_id) >= PLAUSIBLE

    return {
        n: entry_id
        for n, entry_id in claims.items()
        if entry_id in overlap
        and any(may_say(text, entry_id) for text in texts[n - 1] if text)
        and not conflicting(contents[entry_id], next(filter(None, texts[n - 1])))
    }


@once_per_version
def _overlap_of(base: Playbook) -> Overlap:
    return Overlap(base.entries)


def word_for_word(base: Playbook, reflections: Sequence[Reflection]) -> dict[int, str]:
    """Return the reflections whose insight is an entry's content by the strict rule, with the entries."""
    if base.holds != "entries":
        return {}
    index = index_of(base)
    said = (
        (n, index.saying(reflection.key_insight))
        for n, reflection in enumerate(reflections, 1)
        if reflection.key_insight.strip()
    )
    return {n: entry_ids[0] for n, entry_ids in said if entry_ids}


def texts_of(reflection: Reflection) -> tuple[str, ...]:
    """Return the texts of a reflection against which a claim about it is checked."""
    return tuple(getattr(reflection, name) for name in CLAIMED_TEXTS)


def of_group(
    base: Playbook, claims: Claims, reflections: Sequence[Reflection]
) -> tuple[tuple[Known, ...], tuple[Echo, ...]]:
    """Return a group's claims as evidence for entries, and those that only echo what an agent was shown."""
    if not claims:
        return (), ()
    entries = {entry.id: entry for entry in base.entries}
    said = ((entries[entry_id], reflections[n - 1]) for n, entry_id in claims.items())
    return _counted(
        (
            entry.id,
            reflection.reflection_id,
            was_shown(entry.id, entry.created_version, reflection.shown),
            not any(same_lesson(entry.content, text) for text in texts_of(reflection)),
        )
        for entry, reflection in said
    )


def of_combine(
    base: Playbook, claims: Claims, proposals: Sequence[Operation], seen: Iterable[Seen], level: int
) -> tuple[tuple[Known, ...], tuple[Echo, ...]]:
    """Return a combine's claims as evidence for entries, and possible echoes.

    Only the group knows which entries an agent was shown; here only its version is known. So a reflection whose agent
    had a version with the entry is no evidence for it, unless the entry is only proposed, which agents are not shown.
    A reflection that a proposal named only by a guess is no evidence either. Evidence that is a guess by the wording
    of a proposal or of the entry is marked.
    """
    if not claims:
        return (), ()
    since = {entry.id: max(1, entry.created_version) for entry in base.entries if is_active(entry)}
    proven = {reflection.reflection_id: reflection for reflection in seen if reflection.survived >= level}
    content = {entry.id: entry.content for entry in base.entries}
    claimed = (
        (entry_id, proposals[n - 1], same_lesson(content[entry_id], proposals[n - 1].content))
        for n, entry_id in claims.items()
    )
    said = (
        (entry_id, proven[reflection_id], not is_same or reflection_id in proposal.guessed)
        for entry_id, proposal, is_same in claimed
        for reflection_id in proposal.evidence
        if reflection_id in proven
    )
    return _counted(
        (
            entry_id,
            reflection.reflection_id,
            entry_id in since and since[entry_id] <= (reflection.shown_version or 0),
            is_guess,
        )
        for entry_id, reflection, is_guess in said
    )


def _counted(said: Iterable[tuple[str, str, bool, bool]]) -> tuple[tuple[Known, ...], tuple[Echo, ...]]:
    """Return evidence and echoes by entry, from tuples: entry, reflection, is it an echo, is it a guess."""
    known: dict[str, dict[str, bool]] = defaultdict(dict)
    echoes: dict[str, dict[str, bool]] = defaultdict(dict)
    for entry_id, reflection_id, is_echo, is_guess in said:
        ids = (echoes if is_echo else known)[entry_id]
        ids[reflection_id] = is_guess and ids.get(reflection_id, True)
    return (
        tuple(
            Known(entry_id=entry_id, evidence=tuple(ids), guessed=tuple(filter(ids.__getitem__, ids)))
            for entry_id, ids in known.items()
        ),
        tuple(Echo(entry_id=entry_id, evidence=tuple(ids)) for entry_id, ids in echoes.items()),
    )
