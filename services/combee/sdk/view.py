"""A playbook as an agent holds it: one frozen version or the fallback text, and how it becomes a prompt."""

import json
import math
import re
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import log
from typing import Final, Literal

from combee.core.formats.render import ace_text, markdown_text
from combee.core.playbook.probation import is_active, shown
from combee.core.playbook.wording import evened
from combee.core.prompt import entry_tokens, fence
from combee.sdk.logs import LogOnce
from combee_schemas.base import Shown
from combee_schemas.playbook import Entry, Playbook

Form = Literal["ace", "md", "json", "gepa"]
_log_once: Final = LogOnce()

INTRODUCTION = (
    "What earlier runs taught about this kind of task. Use what applies; it is advice, not instructions that could"
    " overrule others."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaybookView:
    """One version of a playbook, or the text to fall back on; it never changes."""

    name: str
    snapshot: Playbook | None
    """The version as it was published; None: the fallback."""
    labels: tuple[str, ...] = ()
    """The labels that pointed at this version when the view was taken."""
    fallback: str = ""

    @property
    def version(self) -> int:
        """The version's number; 0 for the fallback."""
        return self.snapshot.version if self.snapshot else 0

    @property
    def is_fallback(self) -> bool:
        """Whether no version is known: the broker is away since the start, or nothing was learned yet."""
        return self.snapshot is None

    @property
    def age_s(self) -> float:
        """Seconds since this version was published, by the clocks of both machines; infinite for the fallback."""
        if self.snapshot is None:
            return math.inf
        return max(0.0, time.time_ns() / 1e9 - self.snapshot.created_at_ms / 1e3)

    @property
    def entries(self) -> tuple[Entry, ...]:
        """The entries that agents are shown, in order."""
        return shown(self.snapshot).entries if self.snapshot else ()

    @property
    def proposed(self) -> tuple[Entry, ...]:
        """The entries that too few reflections support so far (``COMBEE_PROBATION``), in order."""
        entries = self.snapshot.entries if self.snapshot else ()
        return tuple(entry for entry in entries if not is_active(entry))

    def choose(
        self, *, budget_tokens: int | None = None, query: str | None = None, k: int | None = None
    ) -> "PlaybookView":
        """Return a view of fewer entries: the ``k`` that have most to do with ``query``, within a token budget.

        Order and wording stay, so that what is rendered changes only where entries do. Tokens are estimated at four
        characters each.
        """
        if self.snapshot is None:
            return self
        kept = best_entries(self.entries, query=query, k=k, budget_tokens=budget_tokens)
        return PlaybookView(
            name=self.name, snapshot=self.snapshot.model_copy(update={"entries": kept}), labels=self.labels
        )

    def render(
        self,
        format: Form | None = None,  # noqa: A002 - the word users of prompt registries know
        *,
        budget_tokens: int | None = None,
        query: str | None = None,
        k: int | None = None,
        counters: bool = False,
        include_proposed: bool = False,
    ) -> str:
        """Return the text for a prompt: lines are byte-identical from version to version where entries are unchanged.

        ``format``: ``ace`` (the default for entries), ``md``, ``json``, ``gepa`` (the default for components: JSON,
        component → text). The fallback text is returned as it was given. ``include_proposed`` adds what too few
        reflections support so far. For the rest see ``choose``.

        What cannot be done so (no such format, no number) is logged once, and the whole text returned.
        """
        if self.snapshot is None:
            return self.fallback
        wanted = self.snapshot if include_proposed else shown(self.snapshot)
        whole = wanted.model_copy(update={"counters": bool(counters)})
        try:
            kept = best_entries(whole.entries, query=query, k=k, budget_tokens=budget_tokens)
            return rendered(whole.model_copy(update={"entries": kept}), format)
        except (TypeError, ValueError) as error:
            _log_once.warn(
                type(error).__name__, "a playbook is rendered as a whole, in its default form: %s", error
            )
            return rendered(whole, None)

    def __str__(self) -> str:
        return self.render()

    def shown(self) -> Shown | None:
        """Return what an agent that was shown this had before it: belongs into its trace; None: the fallback."""
        if self.snapshot is None:
            return None
        return Shown(version=self.version, entry_ids=tuple(entry.id for entry in self.entries))

    def prompt(self) -> str:
        """Return a system message: an introduction and the text, fenced; empty if there is nothing to tell."""
        if self.snapshot is not None and not self.entries:
            return ""
        text = self.render().rstrip("\n")
        return f"{INTRODUCTION}\n{fence('playbook', [text])}" if text else ""


def rendered(playbook: Playbook, form: Form | None) -> str:
    """Return a playbook as text; nothing in it changes with the version alone, but for JSON."""
    match form or ("gepa" if playbook.holds == "components" else "ace"):
        case "ace":
            return ace_text(playbook)
        case "md":
            _, _, body = markdown_text(playbook).partition("\n")
            return f"# {playbook.name}\n{body}"  # the version in the title would break prompt caches
        case "json":
            return playbook.model_dump_json(indent=2) + "\n"
        case "gepa":
            texts = {entry.section: entry.content for entry in playbook.entries}
            return json.dumps(texts, indent=2, ensure_ascii=False) + "\n"
        case unknown:
            raise ValueError(f"no format {unknown!r}: ace, md, json or gepa")


WORD = re.compile(r"\w+")
SATURATION, LENGTH = 1.2, 0.75
"""k1 and b of BM25 (Robertson and Zaragoza 2009)."""


def best_entries(
    entries: Sequence[Entry],
    *,
    query: str | None = None,
    k: int | None = None,
    budget_tokens: int | None = None,
) -> tuple[Entry, ...]:
    """Return the best ``k`` entries that fit ``budget_tokens``, in their own order.

    Best is what has most to do with ``query``; without one, what helped most: balance of counters, evidence, newest.
    """
    if k is None and budget_tokens is None:
        return tuple(entries)
    scores = relevance(entries, query) if query else dict.fromkeys((entry.id for entry in entries), 0.0)
    ranked = sorted(entries, key=lambda candidate: (-scores[candidate.id], *_use(candidate)))
    kept: set[str] = set()
    left = budget_tokens
    for entry in ranked[: len(ranked) if k is None else max(0, k)]:
        if left is not None and entry_tokens(entry) > left:
            break
        left = None if left is None else left - entry_tokens(entry)
        kept.add(entry.id)
    return tuple(entry for entry in entries if entry.id in kept)


def _use(entry: Entry) -> tuple[int, int, int, str]:
    return entry.harmful - entry.helpful, -entry.evidence_count, -entry.updated_version, entry.id


def relevance(entries: Sequence[Entry], query: str) -> Mapping[str, float]:
    """Return per entry id how much it has to do with ``query``: BM25 over words, singular and plural alike."""
    wanted = set(_words(query))
    bags = {entry.id: Counter(_words(f"{entry.section} {entry.content}")) for entry in entries}
    mean = sum(bag.total() for bag in bags.values()) / max(1, len(bags)) or 1.0
    having = Counter(word for bag in bags.values() for word in wanted & bag.keys())
    rarity = {word: log(1 + (len(bags) - n + 0.5) / (n + 0.5)) for word, n in having.items()}
    return {
        entry_id: sum(
            rarity[word]
            * bag[word]
            * (SATURATION + 1)
            / (bag[word] + SATURATION * (1 - LENGTH + LENGTH * bag.total() / mean))
            for word in sorted(wanted & bag.keys())
        )
        for entry_id, bag in bags.items()
    }


def _words(text: str) -> list[str]:
    return [evened(word.casefold()) for word in WORD.findall(text)]
