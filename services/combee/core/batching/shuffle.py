"""Augmented shuffling (paper §3.2): into how many groups and levels a batch goes, and who is dealt where; pure.

p copies of every reflection are dealt into different groups: k = ⌊√n⌋ of them, unless a prompt would be too long.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import isqrt
from random import Random

from combee.core.batching import tree
from combee_schemas.model import CHARS_PER_TOKEN
from combee_schemas.plan import PlanSettings, SmallBatches

PAPER_LEVELS = 2
WORDS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
COPIES_FROM = 4
"""Fewer reflections than this make one group without copies (the authors' released code)."""


def group_count(reflections: int, asked: int = 0) -> int:
    """Return k: as requested, at most one group per reflection, otherwise the paper's ⌊√n⌋; 1 when n < 4."""
    if reflections < COPIES_FROM:
        return 1
    return min(asked, reflections) if asked else isqrt(reflections)


def effective_copies(
    reflections: int, copies: int, groups: int, small_batches: SmallBatches = "fewer-copies"
) -> int:
    """Return how many copies are made: none extra for n < 4, and never two copies in one group.

    In new plans they are fewer than groups: groups that all hold everything spread nothing.
    """
    most = max(1, groups - 1) if small_batches == "fewer-copies" else groups
    return min(copies, most) if reflections >= COPIES_FROM else 1


def deal(reflections: int, copies: int, groups: int, seed: int) -> tuple[tuple[int, ...], ...]:
    """Return, per group, the indices 0…n-1 of the reflections whose copies it gets.

    Each reflection goes to the ``copies`` least loaded groups, ties broken by chance, in shuffled order.
    Hence groups differ by at most one in size and, as ``copies`` ≤ ``groups``, no group sees one twice.
    The same arguments give the same groups on every machine.
    """
    if not 1 <= copies <= groups:
        raise ValueError(f"copies must be between 1 and groups ({groups}), not {copies}")
    rng = Random(seed)  # noqa: S311 - reproducible, not secret
    order = _shuffled(range(reflections), rng)
    dealt: list[list[int]] = [[] for _ in range(groups)]
    low, high = _shuffled(range(groups), rng), list[int]()  # loads m and m + 1: balance is kept at each step
    for index in order:
        chosen = [low.pop() for _ in range(min(copies, len(low)))]
        rest = [] if len(chosen) == copies else _shuffled(high, rng)
        raised = [rest.pop() for _ in range(copies - len(chosen))]
        if raised or not low:
            low, high = _shuffled(rest + chosen if raised else high + chosen, rng), raised
        else:
            high += chosen
        for group in chosen + raised:
            dealt[group].append(index)
    return tuple(tuple(group) for group in dealt)


def _shuffled(items: Iterable[int], rng: Random) -> list[int]:
    mixed = list(items)
    rng.shuffle(mixed)
    return mixed


# ---- the shape of a batch


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchShape:
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


def plan_shape(sizes: Sequence[int], seed: int, settings: PlanSettings) -> BatchShape:
    """Return the shape of a batch under a manifest's settings; ``sizes`` are its reflections' bytes."""
    count, tokens = len(sizes), settings.aggregate_tokens
    limits = _limits(sizes, settings.group_bytes, tokens)
    wanted = group_count(count, settings.groups)
    if settings.small_batches == "one-call" and 1 < wanted <= settings.copies and _fits(limits):
        # Each group would hold the whole batch: n < 9 where p = 2, unless k is requested.
        reason = f"k = 1: each of {wanted} groups would hold all {count} reflections"
        return BatchShape(copies=1, widths=(1,), reason=reason)
    groups, tight = (wanted, None) if _fits(limits) else _fitting(wanted, limits, seed, settings)
    copies = effective_copies(count, settings.copies, groups, settings.small_batches)
    proposed = copies * sum(sizes) // CHARS_PER_TOKEN // tree.PROPOSED
    most = proposed if tokens is None else tokens
    widths = tree.plan_widths(groups, settings.fan_in, settings.max_levels, tokens=proposed, most=most)
    reasons = [
        _why_groups(count, wanted, groups, tight, settings),
        _why_copies(count, copies, groups, settings),
    ]
    if groups > 1:
        plain = tree.plan_widths(groups, settings.fan_in, settings.max_levels)
        reasons.append(_why_levels(widths, plain, settings.fan_in, proposed, tokens))
    return BatchShape(copies=copies, widths=widths, reason="; ".join(filter(None, reasons)))


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


def _fitting(
    wanted: int, limits: Sequence[Limit], seed: int, settings: PlanSettings
) -> tuple[int, Limit | None]:
    """Return k, and the limit that forced it up; at most, each copy is alone in its group.

    Each deal takes milliseconds, so k rises in proportion to the fullest group's excess, with growing steps.
    """
    count, copies, small = len(limits[0].sizes), settings.copies, settings.small_batches
    groups, step, tight = wanted, 1, None
    last = max(groups, count * effective_copies(count, copies, count * copies, small))
    while groups < last:
        dealt = deal(count, effective_copies(count, copies, groups, small), groups, seed)
        fullest = ((limit, max(sum(limit.sizes[i] for i in group) for group in dealt)) for limit in limits)
        limit, largest = max(fullest, key=lambda pair: pair[1] / pair[0].most)
        if largest <= limit.most:
            break
        tight = tight or limit
        least = max(groups + step, _least(count, copies, limit), -(-groups * largest // limit.most))
        groups, step = min(least, last), 2 * step
    return groups, tight


def _least(count: int, copies: int, limit: Limit) -> int:
    """Return the average number of groups needed: with room for all, and for the largest next to usual ones."""
    total, largest = sum(limit.sizes), max(limit.sizes)
    usual = max(0, limit.most - largest) * count // total
    return max(-(-copies * total // limit.most), -(-count * copies // (1 + usual)))


def _why_groups(count: int, wanted: int, groups: int, tight: Limit | None, settings: PlanSettings) -> str:
    """Return the reason for this number of ``groups``."""
    if tight is not None:
        return f"k = {groups} instead of {wanted}: with {wanted}, a group {tight.excess}"
    if count < COPIES_FROM:
        return f"k = 1: {count} are too few to be copied"
    return f"k = {groups} as set" if settings.groups else f"k = {groups} = ⌊√{count}⌋"


def _why_copies(count: int, copies: int, groups: int, settings: PlanSettings) -> str:
    """Return why there are fewer copies than requested; empty: there are not, or the groups' reason says it.

    Reasons of the other rules are as they were: they are in the hashes of recorded plans.
    """
    is_new = settings.small_batches == "fewer-copies"
    if copies == settings.copies or count < COPIES_FROM or not is_new:
        return ""
    because = f", so that {groups} groups differ" if groups > 1 else ": one group"
    return f"p = {copies} instead of {settings.copies}{because}"


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
