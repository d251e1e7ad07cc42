"""What waits for a person, and who may teach, as rows and facts of the first page; pure."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

from combee.core.gate.gate import Gate
from combee.core.gate.policy import EVERYBODY, TrustPolicy
from combee.core.log.live.values import Snapshot
from combee.core.playbook.shown import counts
from combee.core.playbook.trust import trust_text
from combee.core.text.redact import redacted
from combee.dashboard.views.rows import Row
from combee.dashboard.views.wording import address, moment
from combee.gateway.playbooks import counted
from combee.log.reports.gate import gate_report, said
from combee_schemas.base import branch_in
from combee_schemas.playbook import Playbook

NAMED = 3
"""Maximum number of playbooks named in a fact."""


def waiting_rows(gates: Mapping[str, Gate], newest: Mapping[str, Playbook], now: Snapshot) -> list[Row]:
    """Return what waits: candidates, longest wait first, then paused playbooks, dead letters, proposed entries."""
    return [*_candidates(gates), *_paused(now), *_dead_letters(now), *_proposed(newest)]


def _candidates(gates: Mapping[str, Gate]) -> Iterator[Row]:
    waiting = [(gate_report(gate), gate, name) for name, gate in gates.items() if gate.waits_for("approve")]
    waiting.sort(key=lambda row: (row[0].since_ms or 0, row[2]))
    for report, gate, name in waiting:
        verdicts = [f"{judge} {said(verdict)}" for judge, verdict in gate.verdicts.items()]
        others = [f"{judge} is awaited, too" for judge in report.waits_for if judge != "approve"]
        reads = f"agents read version {report.production}" if report.production else "agents read no version"
        yield {
            "what": f"approve version {report.candidate} of {name}",
            "since": moment(report.since_ms),
            "more": "; ".join([reads, *verdicts, *others]),
            "href": address(name),
        }


def _paused(now: Snapshot) -> Iterator[Row]:
    for book in now.playbooks:
        if book.paused:
            yield {
                "what": f"{book.name} is paused",
                "since": moment(book.waiting_since_ms),
                "more": book.paused,
                "href": address(book.name),
            }


def _dead_letters(now: Snapshot) -> Iterator[Row]:
    if now.dead_letters:
        newest = next((letter for letter in now.dead_letters_recent if not letter.decision), None)
        yield {
            "what": counted(now.dead_letters, "dead letter"),
            "since": moment(newest.at_ms if newest else None),
            "more": f"the newest one: {redacted(newest.reason)}" if newest else "",
            "href": "/dead-letters",
        }


def _proposed(newest: Mapping[str, Playbook]) -> Iterator[Row]:
    for name, book in newest.items():
        if proposed := counts(book)["proposed"]:
            yield {
                "what": f"{proposed} proposed {'entry' if proposed == 1 else 'entries'} of {name}",
                "since": moment(book.created_at_ms),
                "more": "agents do not see them yet",
                "href": address(name),
            }


def trust_facts(postures: TrustPolicy, newest: Iterable[Playbook]) -> dict[str, str]:
    """Return the configured postures, and what each playbook's last batch says about its sources."""
    configured = [
        f"{trust} for {'every playbook' if pattern == EVERYBODY else pattern}"
        for pattern, trust in postures.by_pattern.items()
    ]
    said: defaultdict[str, list[str]] = defaultdict(list)
    for book in newest:
        if (text := trust_text(book)) and not branch_in(book.name):
            said[text].append(book.name)
    proofs = [f"{text} ({_named(names)})" for text, names in sorted(said.items())]
    return {
        "posture": ", ".join(configured),
        "proof": "; ".join(proofs) or "no playbook has learned anything yet",
    }


def _named(names: list[str]) -> str:
    more = len(names) - NAMED
    return ", ".join(names[:NAMED]) + (f" and {more} more" if more > 0 else "")
