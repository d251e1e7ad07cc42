"""What the playbook says already: evidence for the entry that says it; pure.

The model may say so in whatever words, and code checks it; what a reflection says word for word, code sees itself. In
other words it is a guess: the entry may say more than the reflection. So it supports no entry that is only proposed.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from combee.core.playbook.derived import once_per_version
from combee.core.playbook.echo import was_shown
from combee.core.playbook.probation import is_active
from combee.core.text.similarity.lessons import index_of, same_lesson
from combee.core.text.similarity.overlap import Overlap
from combee_schemas.playbook import Playbook
from combee_schemas.reflection import Reflection
from combee_schemas.scan import Echo, Known, Operation, Seen

PLAUSIBLE = 0.25
"""How much of an item or of the entry, whichever is lighter, the other must say too.

Of 16 paraphrases of entries that a real model learned on AppWorld (318 of them) 15 reach it, and 2 % of the claims
that name another entry do; of claims that name another one of 50 Formula lessons 7 %, of 64 built-in ones 2 %
(`benchmarks/similarity.py`).
"""
CLAIMED_TEXTS = ("key_insight", "correct_approach")
"""What a reflection would have an agent do; the rest is about its run."""

Claims = Mapping[int, str]
"""Item number → the entry that says it already."""


def plausible(base: Playbook, claims: Claims, texts: Sequence[Sequence[str]]) -> dict[int, str]:
    """Return the claims that may be true: there is such an entry, and the item has much to do with it.

    An entry that is only proposed must be said by the item, and no more. ``texts[n - 1]`` are those of item n.
    """
    if not claims:
        return {}
    overlap = _overlap_of(base)
    proposed = {entry.id: entry.content for entry in base.entries if not is_active(entry)}

    def may_say(text: str, entry_id: str) -> bool:
        if entry_id in proposed:
            return same_lesson(proposed[entry_id], text)
        return overlap.contained(text, entry_id) >= PLAUSIBLE

    return {
        n: entry_id
        for n, entry_id in claims.items()
        if entry_id in overlap and any(may_say(text, entry_id) for text in texts[n - 1] if text)
    }


@once_per_version
def _overlap_of(base: Playbook) -> Overlap:
    return Overlap(base.entries)


def word_for_word(base: Playbook, reflections: Sequence[Reflection]) -> dict[int, str]:
    """Return which reflections have the insight of an entry, by the strict rule, and of which."""
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
    """Return the texts of a reflection by which a claim about it is checked."""
    return tuple(getattr(reflection, name) for name in CLAIMED_TEXTS)


def of_group(
    base: Playbook, claims: Claims, reflections: Sequence[Reflection]
) -> tuple[tuple[Known, ...], tuple[Echo, ...]]:
    """Return what a group's claims are evidence for, and those that only echo what an agent was shown."""
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
    """Return what a combine's claims are evidence for, and what may be echoes.

    Only the group knows which entries an agent was shown, here only the version is known. So a reflection whose
    agent had a version with the entry is no evidence for it, unless the entry is only proposed, which no agent is
    shown. Neither is one that a proposal named only by a guess. What is a guess by its words, of a proposal or of the
    entry, is marked.
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
    """Return evidence and echoes by entry; ``said``: entry, reflection, whether it is an echo, whether a guess."""
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
