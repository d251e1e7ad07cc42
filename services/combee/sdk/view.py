"""A playbook for agents: one frozen version or the fallback text, rendered as a prompt."""

import json
import math
import time
from dataclasses import dataclass
from typing import Final, Literal

from combee.core.formats.render import ace_text, markdown_text
from combee.core.playbook.budget import has_several
from combee.core.playbook.shown import shown, shown_to
from combee.core.text.prompt import INTRODUCTION, MARKS, fence
from combee.core.text.similarity.relevance import best_entries
from combee.sdk.logs import LogOnce
from combee_schemas.base import Shown
from combee_schemas.playbook import Entry, Playbook

Form = Literal["ace", "md", "json", "gepa"]
_log_once: Final = LogOnce()


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaybookView:
    """One version of a playbook, or the fallback text; it never changes."""

    name: str
    snapshot: Playbook | None
    """The version as it was published, None for the fallback."""
    labels: tuple[str, ...] = ()
    """The labels that pointed at this version when the view was taken."""
    fallback: str = ""
    canary: str = ""
    """The reader's group in a canary, empty outside a canary."""

    @property
    def version(self) -> int:
        """The version's number; 0 for the fallback."""
        return self.snapshot.version if self.snapshot else 0

    @property
    def is_fallback(self) -> bool:
        """Whether no version is known, because the broker was never reached or nothing was learned yet."""
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
        """The entries with too few supporting reflections so far (``COMBEE_PROBATION``), in order."""
        entries = self.snapshot.entries if self.snapshot else ()
        return tuple(entry for entry in entries if not entry.is_active)

    def choose(
        self, *, budget_tokens: int | None = None, query: str | None = None, k: int | None = None
    ) -> "PlaybookView":
        """Return a view of the ``k`` entries most relevant to ``query``, within a token budget.

        Order and wording stay, so that the rendered text changes only where entries do. Tokens are estimated at four
        characters each.
        """
        if self.snapshot is None:
            return self
        kept = best_entries(
            self.entries, query=query, k=k, budget_tokens=budget_tokens, several=has_several(self.snapshot)
        )
        return PlaybookView(
            name=self.name,
            snapshot=self.snapshot.model_copy(update={"entries": kept}),
            labels=self.labels,
            canary=self.canary,
        )

    def nearest(self, query: str, budget_tokens: int | None) -> "PlaybookView":
        """Return the view for an agent with the task ``query``: all entries, or the nearest within the budget.

        Components are whole texts and stay whole. An error is logged once, and the whole view returned.
        """
        if budget_tokens is None or self.snapshot is None or self.snapshot.holds == "components":
            return self
        try:
            return self.choose(budget_tokens=budget_tokens, query=query or None)
        except (TypeError, ValueError) as error:
            _log_once.warn(type(error).__name__, "a playbook is shown as a whole: %s", error)
            return self

    def render(
        self,
        format: Form | None = None,  # noqa: A002 - the term of prompt registries
        *,
        budget_tokens: int | None = None,
        query: str | None = None,
        k: int | None = None,
        counters: bool = False,
        include_proposed: bool = False,
    ) -> str:
        """Return the plain text for files and other programs; for prompts use ``prompt``.

        Lines are byte-identical from version to version where entries are unchanged.

        ``format``: ``ace`` (the default for entries), ``md``, ``json``, ``gepa`` (the default for components: JSON,
        component → text). The fallback text is returned as it was given. ``include_proposed`` adds proposed
        entries. For the other arguments see ``choose``.

        An invalid argument (unknown format, no number) is logged once, and the whole text returned.
        """
        if self.snapshot is None:
            return self.fallback
        wanted = self.snapshot if include_proposed else shown(self.snapshot)
        whole = wanted.model_copy(update={"counters": bool(counters)})
        try:
            kept = best_entries(
                whole.entries, query=query, k=k, budget_tokens=budget_tokens, several=has_several(whole)
            )
            return rendered(whole.model_copy(update={"entries": kept}), format)
        except (TypeError, ValueError) as error:
            _log_once.warn(
                type(error).__name__, "a playbook is rendered as a whole, in its default form: %s", error
            )
            return rendered(whole, None)

    def __str__(self) -> str:
        return self.render()

    def shown(self) -> Shown:
        """Return the ``shown`` field for the agent's trace; the fallback is version 0, with which others compare."""
        if self.snapshot is None:
            return Shown(version=0, canary=self.canary)
        return shown_to(self.snapshot, tuple(self.entries)).model_copy(update={"canary": self.canary})

    def prompt(self) -> str:
        """Return a system message with the fenced text, marked as data and not orders; empty without a text."""
        if self.snapshot is not None and not self.entries:
            return ""
        text = self.render().rstrip("\n")
        return f"{INTRODUCTION} {MARKS}\n{fence('playbook', [text], owner=self.name)}" if text else ""


def rendered(playbook: Playbook, form: Form | None) -> str:
    """Return a playbook as text, which (except JSON) does not change with the version number alone."""
    match form or ("gepa" if playbook.holds == "components" else "ace"):
        case "ace":
            return ace_text(playbook)
        case "md":
            _, _, body = markdown_text(playbook).partition("\n")
            return f"# {playbook.name}\n{body}"  # a version in the title would break prompt caches
        case "json":
            return playbook.model_dump_json(indent=2) + "\n"
        case "gepa":
            texts = {entry.section: entry.content for entry in playbook.entries}
            return json.dumps(texts, indent=2, ensure_ascii=False) + "\n"
        case unknown:
            raise ValueError(f"no format {unknown!r}: ace, md, json or gepa")
