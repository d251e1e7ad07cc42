"""What waits for a person, and who may teach; pure."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Literal

from combee.core.gate.gate import Gate
from combee.core.gate.judges import PERSON
from combee.core.gate.policy import EVERYBODY, TrustPolicy
from combee.core.log.live.values import Snapshot
from combee.core.playbook.shown import counts
from combee.core.playbook.trust import trust_text
from combee.core.text.redact import redacted
from combee.log.reports.gate import gate_report, said
from combee_schemas.base import Value, branch_in
from combee_schemas.playbook import Playbook

NAMED = 3
"""Maximum number of playbooks named in a fact."""


class Waiting(Value):
    """Something that waits for a person."""

    kind: Literal["candidate", "paused", "dead_letters", "proposed"]
    playbook: str = ""
    """Where it is decided; empty: on no playbook's page."""
    what: str
    more: str = ""
    since_ms: int | None


def waiting(gates: Mapping[str, Gate], newest: Mapping[str, Playbook], now: Snapshot) -> list[Waiting]:
    """Return what waits: candidates, longest wait first, then paused playbooks, dead letters, proposed entries."""
    return [*_candidates(gates), *_paused(now), *_dead_letters(now), *_proposed(newest)]


def _candidates(gates: Mapping[str, Gate]) -> Iterator[Waiting]:
    candidates = [(gate_report(gate), gate, name) for name, gate in gates.items() if gate.waits_for(PERSON)]
    candidates.sort(key=lambda row: (row[0].since_ms or 0, row[2]))
    for report, gate, name in candidates:
        verdicts = [f"{judge} {said(verdict)}" for judge, verdict in gate.verdicts.items()]
        others = [f"{judge} is awaited, too" for judge in report.waits_for if judge != PERSON]
        reads = f"agents read version {report.production}" if report.production else "agents read no version"
        yield Waiting(
            kind="candidate",
            playbook=name,
            what=f"approve version {report.candidate} of {name}",
            more="; ".join([reads, *verdicts, *others]),
            since_ms=report.since_ms,
        )


def _paused(now: Snapshot) -> Iterator[Waiting]:
    for book in now.playbooks:
        if book.paused:
            yield Waiting(
                kind="paused",
                playbook=book.name,
                what=f"{book.name} is paused",
                more=book.paused,
                since_ms=book.waiting_since_ms,
            )


def _dead_letters(now: Snapshot) -> Iterator[Waiting]:
    if now.dead_letters:
        newest = next((letter for letter in now.dead_letters_recent if not letter.decision), None)
        yield Waiting(
            kind="dead_letters",
            what=f"{now.dead_letters} dead letter{'' if now.dead_letters == 1 else 's'}",
            more=f"the newest one: {redacted(newest.reason)}" if newest else "",
            since_ms=newest.at_ms if newest else None,
        )


def _proposed(newest: Mapping[str, Playbook]) -> Iterator[Waiting]:
    for name, book in newest.items():
        if proposed := counts(book)["proposed"]:
            yield Waiting(
                kind="proposed",
                playbook=name,
                what=f"{proposed} proposed {'entry' if proposed == 1 else 'entries'} of {name}",
                more="agents do not see them yet",
                since_ms=book.created_at_ms,
            )


def trust_facts(postures: TrustPolicy, newest: Iterable[Playbook]) -> dict[str, str]:
    """Return the configured postures, and what each playbook's last batch says about its sources."""
    configured = [
        f"{trust} for {'every playbook' if pattern == EVERYBODY else pattern}"
        for pattern, trust in postures.by_pattern.items()
    ]
    told: defaultdict[str, list[str]] = defaultdict(list)
    for book in newest:
        if (text := trust_text(book)) and not branch_in(book.name):
            told[text].append(book.name)
    proofs = [f"{text} ({_named(names)})" for text, names in sorted(told.items())]
    return {
        "posture": ", ".join(configured),
        "proof": "; ".join(proofs) or "no playbook has learned anything yet",
    }


def _named(names: list[str]) -> str:
    more = len(names) - NAMED
    return ", ".join(names[:NAMED]) + (f" and {more} more" if more > 0 else "")
