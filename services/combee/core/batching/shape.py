"""Number of groups and levels of a batch, and the reason: the paper's k = ⌊√n⌋ unless a prompt would be too long."""

from collections.abc import Sequence
from dataclasses import dataclass

from combee.core.batching import shuffle, tree
from combee_schemas.model import CHARS_PER_TOKEN
from combee_schemas.plan import SmallBatches

PAPER_LEVELS = 2
WORDS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """The inputs of a batch's plan other than its members and its seed."""

    copies: int
    widths: tuple[int, ...]
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """Capacity of one group; ``sizes`` are the reflections' bytes."""

    sizes: Sequence[int]
    most: int
    excess: str
    """Words for a group that exceeds the limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wanted:
    """The wanted groups of a batch, before limits."""

    count: int
    """Number of the batch's reflections."""
    asked: int
    """Requested k; 0: the paper's."""
    copies: int
    """Requested p."""
    small_batches: SmallBatches

    @property
    def groups(self) -> int:
        return shuffle.group_count(self.count, self.asked)

    def copies_in(self, groups: int) -> int:
        """Return the number of copies in so many groups."""
        return shuffle.effective_copies(self.count, self.copies, groups, self.small_batches)

    def why_copies(self, groups: int) -> str:
        """Return why there are fewer copies than requested; empty: there are not, or the groups' reason says it.

        Reasons of the other rules are as they were: they are in the hashes of recorded plans.
        """
        copies, is_new = self.copies_in(groups), self.small_batches == "fewer-copies"
        if copies == self.copies or self.count < shuffle.COPIES_FROM or not is_new:
            return ""
        because = f", so that {groups} groups differ" if groups > 1 else ": one group"
        return f"p = {copies} instead of {self.copies}{because}"

    def why(self, groups: int, tight: Limit | None) -> str:
        """Return the reason for this number of ``groups``."""
        if tight is not None:
            return f"k = {groups} instead of {self.groups}: with {self.groups}, a group {tight.excess}"
        if self.count < shuffle.COPIES_FROM:
            return f"k = 1: {self.count} are too few to be copied"
        return f"k = {groups} as set" if self.asked else f"k = {groups} = ⌊√{self.count}⌋"

    @property
    def why_one_call(self) -> str:
        return f"k = 1: each of {self.groups} groups would hold all {self.count} reflections"


def plan_shape(
    sizes: Sequence[int],
    seed: int,
    *,
    copies: int,
    groups: int = 0,
    fan_in: int,
    max_levels: int,
    group_bytes: int,
    aggregate_tokens: int | None = None,
    small_batches: SmallBatches = "paper",
) -> Shape:
    """Return the shape of a batch whose reflections have these ``sizes`` (bytes).

    ``groups``: requested k; 0: the paper's.
    """
    limits = _limits(sizes, group_bytes, aggregate_tokens)
    wanted = _Wanted(count=len(sizes), asked=groups, copies=copies, small_batches=small_batches)
    if small_batches == "one-call" and 1 < wanted.groups <= copies and _fits(limits):
        # Each group would hold the whole batch: n < 9 where p = 2, unless k is requested.
        return Shape(copies=1, widths=(1,), reason=wanted.why_one_call)
    groups, tight = _fitting(wanted, limits, seed)
    copies = wanted.copies_in(groups)
    proposed = copies * sum(sizes) // CHARS_PER_TOKEN // tree.PROPOSED
    most = proposed if aggregate_tokens is None else aggregate_tokens
    widths = tree.plan_widths(groups, fan_in, max_levels, tokens=proposed, most=most)
    plain = tree.plan_widths(groups, fan_in, max_levels)
    why = [reason for reason in (wanted.why(groups, tight), wanted.why_copies(groups)) if reason]
    if groups > 1:
        why.append(_why_levels(widths, plain, fan_in, proposed, aggregate_tokens))
    return Shape(copies=copies, widths=widths, reason="; ".join(why))


def _fits(limits: Sequence[Limit]) -> bool:
    return all(sum(limit.sizes) <= limit.most for limit in limits)


def _limits(sizes: Sequence[int], group_bytes: int, tokens: int | None) -> list[Limit]:
    excess = f"would be larger than {group_bytes >> 10:,} KiB"
    limits = [Limit(sizes=sizes, most=group_bytes, excess=excess)]
    if tokens is not None:
        # A single reflection over the limit is not counted: no number of groups would make it shorter.
        most = tokens * CHARS_PER_TOKEN
        fitting = [size if size <= most else 0 for size in sizes]
        limits.append(Limit(sizes=fitting, most=most, excess=f"would read more than {tokens:,} tokens"))
    return limits


def _fitting(wanted: _Wanted, limits: Sequence[Limit], seed: int) -> tuple[int, Limit | None]:
    """Return k, and the limit that forced it up; at most, each copy is alone in its group.

    Each deal takes milliseconds, so k rises in proportion to the fullest group's excess, with growing steps.
    """
    groups, step, tight = wanted.groups, 1, None
    last = max(groups, wanted.count * wanted.copies_in(wanted.count * wanted.copies))
    while groups < last and (over := _over(wanted, groups, limits, seed)):
        limit, largest = over
        tight = tight or limit
        least = max(groups + step, _least(wanted, limit), -(-groups * largest // limit.most))
        groups, step = min(least, last), 2 * step
    return groups, tight


def _over(wanted: _Wanted, groups: int, limits: Sequence[Limit], seed: int) -> tuple[Limit, int] | None:
    """Return the limit that a group exceeds most when there are ``groups``, and the fullest group's size."""
    if _fits(limits):
        return None
    dealt = shuffle.deal(wanted.count, wanted.copies_in(groups), groups, seed)
    fullest = ((limit, max(sum(limit.sizes[i] for i in group) for group in dealt)) for limit in limits)
    limit, largest = max(fullest, key=lambda pair: pair[1] / pair[0].most)
    return (limit, largest) if largest > limit.most else None


def _least(wanted: _Wanted, limit: Limit) -> int:
    """Return the average number of groups needed: with room for all, and for the largest next to usual ones."""
    total, largest, count = sum(limit.sizes), max(limit.sizes), wanted.count
    usual = max(0, limit.most - largest) * count // total
    return max(-(-wanted.copies * total // limit.most), -(-count * wanted.copies // (1 + usual)))


def _why_levels(
    widths: tuple[int, ...], plain: tuple[int, ...], fan_in: int, proposed: int, most: int | None
) -> str:
    levels = f"{WORDS[len(widths)] if len(widths) < len(WORDS) else len(widths)} levels"
    wide = f" because a node takes at most {fan_in} children" if len(plain) > PAPER_LEVELS else ""
    if most is None:
        return levels + wide
    proposals = f"{widths[0]} proposals of about {proposed // widths[0]:,} tokens"
    if proposed <= most:
        return f"{levels}{wide}: {proposals} fit in {most:,}"
    reads = max(tree.reads(widths, proposed))
    beyond = f"; no deeper, though a combine may read {reads:,} tokens" if reads > most else ""
    deeper = " because" if len(widths) > len(plain) else ":"
    return f"{levels}{deeper} {proposals} exceed {most:,}{beyond}"
