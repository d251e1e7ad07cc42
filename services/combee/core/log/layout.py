"""The topics' required layout on the broker, and its comparison with the existing one."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from combee_schemas.topics import FORMAT_MARK, REFLECTIONS, TIMES, TOPICS, AnyTopic

CHECKED = ("cleanup.policy", "retention.ms", TIMES)
"""Settings whose wrong value loses data; all others are the operator's to tune."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """The required layout of one topic."""

    topic: AnyTopic
    partitions: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Existing:
    """The existing layout of one topic."""

    partitions: int
    config: Mapping[str, str]


def wanted(partitions: int, scan_partitions: int) -> tuple[Wanted, ...]:
    """Return every topic with its partition count, which is equal for all topics keyed by playbook."""
    counts = {"traces": scan_partitions, "scan": scan_partitions, "playbooks": partitions, "single": 1}
    return tuple(Wanted(topic=topic, partitions=counts[topic.spread]) for topic in TOPICS)


def nested(prefix: str, names: Iterable[str]) -> list[str]:
    """Return the prefixes of other deployments, found in the topics' full names, that contain this one or lie in it.

    A right on all topics beginning with ``combee.`` includes ``combee.b.reflections``.
    """
    ends = f".{REFLECTIONS.name}"
    others = {name.removesuffix(ends) for name in names if name.endswith(ends)} - {prefix}
    return sorted(
        other for other in others if other.startswith(f"{prefix}.") or prefix.startswith(f"{other}.")
    )


def half_restored(prefix: str) -> str:
    """Return the problem with topics of a partial restore or an unfinished deletion."""
    return (
        f"an archive has been read into {prefix} in part only: run 'combee restore FILE --to {prefix}' again, with"
        " the same FILE; it goes on where it stopped. If it was 'combee forget' that stopped, run that again"
    )


def other_format(prefix: str, have: Iterable[str]) -> str | None:
    """Return the problem with a prefix whose topics (``have``, without prefix) have another format."""
    names = frozenset(have)
    if FORMAT_MARK in names or names.isdisjoint(topic.name for topic in TOPICS):
        return None
    return (
        f"{prefix} has another format than this release, or 'combee topics create' did not make it (there is no"
        f" {prefix}.{FORMAT_MARK}): start the release that wrote it, or choose another COMBEE_TOPIC_PREFIX"
    )


def problems(want: Sequence[Wanted], have: Mapping[str, Existing], prefix: str) -> list[str]:
    """Return all problems, each with its remedy; ``have`` includes the format mark."""
    if (problem := other_format(prefix, have)) is not None:
        return [problem]
    wrong: list[str] = []
    for topic in want:
        name = f"{prefix}.{topic.topic.name}"
        state = have.get(topic.topic.name)
        if state is None:
            wrong.append(f"{name} is missing: run 'combee topics create'")
            continue
        if state.partitions != topic.partitions:
            wrong.append(_partitions(name, topic, state))
        wrong += _config(name, topic.topic, state.config)
    return wrong


def _partitions(name: str, want: Wanted, state: Existing) -> str:
    setting = "COMBEE_SCAN_PARTITIONS" if want.topic.spread in {"scan", "traces"} else "COMBEE_PARTITIONS"
    remedy = (
        "it must have one: recreate it"
        if want.topic.spread == "single"
        else f"set {setting}={state.partitions}, or use a new COMBEE_TOPIC_PREFIX (the count is fixed for ever)"
    )
    return f"{name} has {state.partitions} partitions instead of {want.partitions}: {remedy}"


def _config(name: str, topic: AnyTopic, config: Mapping[str, str]) -> list[str]:
    return [
        f"{name} has {key}={config.get(key)} instead of {value}: run"
        f" kafka-configs --alter --topic {name} --add-config {key}={value}"
        for key, value in topic.config().items()
        if key in CHECKED and not _sufficient(key, config.get(key), value)
    ]


def _sufficient(key: str, have: str | None, want: str) -> bool:
    """Return whether a value is right; a longer retention than required is."""
    if key != "retention.ms" or have is None or not have.lstrip("-").isdigit():
        return have == want
    return int(have) == -1 or (int(want) != -1 and int(have) >= int(want))
