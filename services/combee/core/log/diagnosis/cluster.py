"""The cluster: broker and its version, topics, clocks."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from combee.core.log.diagnosis.check import Check

FETCH, JOIN_GROUP = 1, 11
TRANSACTIONS = (22, 24, 25, 26, 28)
"""Requests by Kafka's numbers: InitProducerId, AddPartitionsToTxn, AddOffsetsToTxn, EndTxn, TxnOffsetCommit."""
STATIC_MEMBERS = 5
"""The first version of JoinGroup with static members (KIP-345)."""
RELEASES = ((18, "4.1"), (17, "3.9"), (16, "3.7"), (15, "3.5"), (13, "3.1"), (12, "2.7"), (11, "2.3"))
"""Version of Fetch → first Kafka release with it: brokers report their requests, not their release."""

WARN_SKEW_MS, FAIL_SKEW_MS = 1_000, 60_000
MIN_SAFE_REPLICAS = 3
LONGEST_S = 60.0
"""Maximum transaction timeout that brokers should allow, which is the default of clients."""
OPEN_S = 75.0
"""Age at which a transaction should have ended: Kafka ends ours after 15 s, others after ``LONGEST_S``, and looks
every ten."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerState:
    """The answering broker, and the newest version of each request that it supports."""

    addresses: tuple[str, ...]
    requests: Mapping[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicReplicas:
    """State of a topic's replicas."""

    replication_factor: int
    leaderless: int
    """Number of partitions without a leader."""
    under_replicated: int


def judge_broker(broker: BrokerState) -> Check:
    """Judge whether the brokers support all requests that Combee needs."""
    fetch = broker.requests.get(FETCH, 0)
    release = next((name for version, name in RELEASES if fetch >= version), None)
    known = f"Kafka {release} or newer" if release else "a Kafka older than 2.3"
    says = f"{known} at {', '.join(broker.addresses)}"
    if any(number not in broker.requests for number in TRANSACTIONS):
        return Check(
            name="broker",
            verdict="fail",
            says=f"{says}, without transactions",
            remedy="use Apache Kafka 3.1 or newer: without transactions reflections can count twice",
        )
    if broker.requests.get(JOIN_GROUP, 0) < STATIC_MEMBERS:
        return Check(
            name="broker",
            verdict="warn",
            says=f"{says}, without static members",
            remedy="use Apache Kafka 3.1 or newer: each restart of a worker stops its group for seconds",
        )
    return Check(name="broker", verdict="ok", says=says)


NONE = Check(name="topics", verdict="fail", says="there are none yet", remedy="run 'combee topics create'")
NONE_YET = Check(
    name="topics",
    verdict="warn",
    says="there are none yet",
    remedy="nothing to do: on the embedded broker the first 'combee up' or 'combee learn' makes them",
)


def judge_topics(
    problems: Sequence[str], topics: Mapping[str, TopicReplicas], *, brokers: int, embedded: bool
) -> list[Check]:
    """Judge the layout's problems (``layout.problems``), then the replicas of the existing topics."""
    if not topics:
        return [NONE_YET if embedded else NONE]
    checks = [_problem(text) for text in problems]
    leaderless = sorted(name for name, topic in topics.items() if topic.leaderless)
    if leaderless:
        says = f"partitions without a leader: {', '.join(leaderless)}"
        remedy = "bring the brokers back that hold them; until then nothing is read or written there"
        checks.append(Check(name="topics", verdict="fail", says=says, remedy=remedy))
    behind = sorted(name for name, topic in topics.items() if topic.under_replicated)
    if behind:
        says = f"replicas are missing: {', '.join(behind)}"
        remedy = "see which broker is down or behind; one more failure can stop or lose these"
        checks.append(Check(name="topics", verdict="warn", says=says, remedy=remedy))
    single = sorted(name for name, topic in topics.items() if topic.replication_factor < MIN_SAFE_REPLICAS)
    if brokers >= MIN_SAFE_REPLICAS and single:
        says = f"{len(single)} topics have fewer than {MIN_SAFE_REPLICAS} replicas on {brokers} brokers"
        remedy = "raise them with kafka-reassign-partitions; for new topics set COMBEE_REPLICATION_FACTOR=3"
        checks.append(Check(name="topics", verdict="warn", says=says, remedy=remedy))
    return checks or [
        Check(name="topics", verdict="ok", says=f"all {len(topics)} topics are as they should be")
    ]


def _problem(text: str) -> Check:
    """Return a check of ``name has …: remedy``."""
    says, _, remedy = text.partition(": ")
    return Check(name="topics", verdict="fail", says=says, remedy=remedy)


def judge_transactions(started: Mapping[str, float]) -> Check:
    """Judge unfinished transactions: their age in seconds by place (``TOPIC[P]@O``)."""
    stuck = sorted(place for place, age_s in started.items() if age_s > OPEN_S)
    if not stuck:
        return Check(name="transactions", verdict="ok", says="none of these topics stays open")
    return Check(
        name="transactions",
        verdict="fail",
        says=f"open for more than {OPEN_S:.0f} s, and nobody reads past them: {', '.join(stuck)}",
        remedy=(
            "an agent hangs in one: stop it, and set transaction.max.timeout.ms=60000 on the brokers. Or Kafka lost"
            " its end (docs/design/adr/0027-hanging-transactions.md): stop all services. With Kafka's own tool, for"
            " TOPIC[P]@O: kafka-transactions --bootstrap-server … abort --topic TOPIC --partition P --start-offset O;"
            " the same for what kafka-transactions --bootstrap-server … find-hanging --topic"
            " __consumer_offsets --max-transaction-timeout 1 lists. Start the services, which go on from the log, and"
            " run 'combee ledger'"
        ),
    )


def judge_longest_transaction(longest_s: float) -> Check:
    """Judge how long the brokers let a transaction stay open."""
    says = f"may stay open for {longest_s:.0f} s at most"
    if longest_s <= LONGEST_S:
        return Check(name="transactions", verdict="ok", says=says)
    return Check(
        name="transactions",
        verdict="warn",
        says=f"{says}; a hanging agent can hold up learning that long",
        remedy=f"set transaction.max.timeout.ms={LONGEST_S * 1000:.0f} on every broker",
    )


def judge_clock(skew_ms: float, within_ms: float) -> Check:
    """Judge the offset of this clock from the broker's; ``within_ms`` is the measurement's error."""
    direction = "ahead of" if skew_ms > 0 else "behind"
    says = f"{abs(skew_ms) / 1000:.3f} s {direction} the broker's (± {within_ms / 1000:.3f} s)"
    certain_ms = max(0.0, abs(skew_ms) - within_ms)
    if certain_ms < WARN_SKEW_MS:
        return Check(name="clock", verdict="ok", says=says)
    remedy = (
        "set both clocks (NTP): Kafka expires records by their time, and refuses records more than an hour"
        " ahead of its clock; no decision of Combee depends on the clock, but all displayed times do"
    )
    verdict = Check(name="clock", verdict="warn", says=says, remedy=remedy)
    return (
        verdict
        if certain_ms < FAIL_SKEW_MS
        else Check(name="clock", verdict="fail", says=says, remedy=remedy)
    )
