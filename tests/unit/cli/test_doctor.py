"""What the doctor makes of what it finds, how it speaks and how it exits; nothing is asked here."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from combee.adapters.ports import Embedded, FatalError
from combee.cli.doctor import examine as doctor_checks
from combee.cli.doctor import examine as doctor_surroundings
from combee.cli.doctor.examine import settings_checks
from combee.cli.doctor.probes import embeddings, within
from combee.core.log.diagnosis import Check, failed
from combee.core.log.diagnosis.cluster import (
    BrokerState,
    TopicReplicas,
    judge_broker,
    judge_clock,
    judge_longest_transaction,
    judge_topics,
    judge_transactions,
)
from combee.core.log.diagnosis.flow import (
    GroupLag,
    Unpublished,
    judge_batches,
    judge_branches,
    judge_dead_letters,
    judge_lag,
)
from combee.core.log.diagnosis.surroundings import (
    Form,
    ModelTrial,
    judge_disk,
    judge_embeddings,
    judge_model,
    judge_settings,
    judge_workers,
    strangers,
)
from combee.process.settings.loading import Settings, load_settings
from support.reading import run, run_json
from support.rows import each_row

MODERN = {1: 18, 11: 9, 22: 5, 24: 5, 25: 4, 26: 5, 28: 5}
FINE = TopicReplicas(replication_factor=1, leaderless=0, under_replicated=0)
KEY = "tops3cret-key"


def without(number: int) -> dict[int, int]:
    return {key: newest for key, newest in MODERN.items() if key != number}


@each_row(
    ("requests", "verdict", "told"),
    [
        (MODERN, "ok", "Kafka 4.1 or newer at a:1"),
        (MODERN | {1: 13}, "ok", "Kafka 3.1 or newer"),
        (MODERN | {1: 4, 11: 4}, "warn", "older than 2.3"),
        (without(28), "fail", "without transactions"),
        ({}, "fail", "without transactions"),
    ],
)
def test_a_broker_is_judged_by_what_it_can_do(requests: dict[int, int], verdict: str, told: str) -> None:
    check = judge_broker(BrokerState(addresses=("a:1",), requests=requests))
    assert check.verdict == verdict
    assert told in check.says


def test_a_paused_branch_is_a_warning_that_says_why() -> None:
    assert judge_branches({}).verdict == "ok"
    assert judge_branches({"a@x": "", "a@y": ""}).says == "2 learn: a@x, a@y"
    check = judge_branches({"a@x": "", "a@y": "1,000 of 1,000 tokens spent today"})
    assert (check.verdict, check.says) == ("warn", "a@y is paused: 1,000 of 1,000 tokens spent today")
    assert "share the cap" in check.remedy


@each_row(
    ("problems", "found", "brokers", "expected"),
    [
        ([], {"a": FINE}, 1, [("ok", "")]),
        ([], {}, 1, [("fail", "combee topics create")]),
        (["c.a is missing: run 'x'"], {"b": FINE}, 1, [("fail", "run 'x'")]),
        (
            [],
            {"a": TopicReplicas(replication_factor=1, leaderless=1, under_replicated=1)},
            1,
            ["fail", "warn"],
        ),
        ([], {"a": FINE}, 3, [("warn", "COMBEE_REPLICATION_FACTOR=3")]),
        ([], {"a": TopicReplicas(replication_factor=3, leaderless=0, under_replicated=0)}, 3, [("ok", "")]),
    ],
)
def test_topics_are_judged_by_layout_and_replicas(
    problems: list[str],
    found: dict[str, TopicReplicas],
    brokers: int,
    expected: list[tuple[str, str] | str],
) -> None:
    checks = judge_topics(problems, found, brokers=brokers, embedded=False)
    for check, wanted in zip(checks, expected, strict=True):
        verdict, remedy = (wanted, "") if isinstance(wanted, str) else wanted
        assert check.verdict == verdict
        assert remedy in check.remedy


def test_a_fresh_embedded_broker_is_no_failure() -> None:
    (check,) = judge_topics(["a is missing: x"], {}, brokers=1, embedded=True)
    assert check.verdict == "warn"


@each_row(
    ("skew_ms", "within_ms", "verdict"),
    [
        (3.0, 1.0, "ok"),
        (-2_000.0, 10.0, "warn"),
        (2_000.0, 1_500.0, "ok"),
        (3_600_000.0, 10.0, "fail"),
        (-61_000.0, 10.0, "fail"),
    ],
)
def test_clocks_may_differ_by_what_is_not_known(skew_ms: float, within_ms: float, verdict: str) -> None:
    check = judge_clock(skew_ms, within_ms)
    assert check.verdict == verdict
    assert ("ahead of" if skew_ms > 0 else "behind") in check.says


@each_row(
    ("records", "oldest_s", "members", "verdict"),
    [(0, None, 0, "ok"), (5, 2.0, 0, "fail"), (5, 2.0, 1, "ok"), (5, 400.0, 1, "warn")],
)
def test_what_waits_needs_somebody_who_works(
    records: int, oldest_s: float | None, members: int, verdict: str
) -> None:
    found = GroupLag(group="scan", records=records, oldest_s=oldest_s, members=members)
    assert judge_lag(found).verdict == verdict


def test_old_dead_letters_are_no_news() -> None:
    assert judge_dead_letters(total=0, recent=0, reasons=[]).verdict == "ok"
    assert judge_dead_letters(total=9, recent=0, reasons=["why"]).verdict == "ok"
    check = judge_dead_letters(total=9, recent=1, reasons=["first", "last"])
    assert (check.verdict, check.says) == ("warn", "9 in all, 1 open of the last day; the last: last")


@each_row(("age_s", "verdict"), [(899.0, "ok"), (901.0, "warn"), (3601.0, "fail")])
def test_a_batch_is_late_after_its_time_and_stuck_after_all_repeats(age_s: float, verdict: str) -> None:
    found = [
        Unpublished(playbook="p", sequence=7, age_s=age_s),
        Unpublished(playbook="q", sequence=1, age_s=1),
    ]
    check = judge_batches(found, timeout_s=900.0, retries=3)
    assert check.verdict == verdict
    assert ("p #7" in check.says) == (verdict != "ok")
    assert "q #1" not in check.says


@each_row(
    ("works", "trouble", "verdict", "told"),
    [
        (["JSON schema", "JSON mode", "plain text"], None, "ok", "JSON schema, JSON mode, plain text"),
        (["JSON mode", "plain text"], None, "ok", "JSON mode"),
        (["plain text"], None, "warn", "plain text"),
        ([], None, "fail", "no reply"),
        ([], "the model's server answered 401; check the API key", "fail", "401"),
    ],
)
def test_a_model_is_judged_by_the_forms_that_work(
    works: list[Form], trouble: str | None, verdict: str, told: str
) -> None:
    check = judge_model(ModelTrial(model="m", works=frozenset(works), trouble=trouble))
    assert check.verdict == verdict
    assert told in check.says
    if trouble:
        assert check.remedy == "check the API key"


@each_row(("free_mib", "verdict"), [(4000, "ok"), (1000, "warn"), (100, "fail")])
def test_a_disk_must_have_room(free_mib: int, verdict: str) -> None:
    assert judge_disk(free_bytes=free_mib << 20, total_bytes=1 << 40).verdict == verdict


def test_a_worker_is_not_ready_for_the_reasons_it_gives() -> None:
    assert judge_workers({"scan": [], "publish": []}, {})[0].says == "all ready: scan, publish"
    (check,) = judge_workers({"scan": ["model: 401"], "publish": []}, {"scan": []})
    assert (check.verdict, check.says) == ("fail", "scan is not ready: model: 401")


def test_settings_nobody_reads_are_named_with_what_was_meant() -> None:
    known = ["COMBEE_BATCH_SIZE", "COMBEE_MODEL"]
    unknown = strangers(["COMBEE_BATCHSIZE", "COMBEE_MODEL", "COMBEE_ZZZ"], known)
    assert unknown == {"COMBEE_BATCHSIZE": "COMBEE_BATCH_SIZE", "COMBEE_ZZZ": None}
    checks = judge_settings(unknown, ["api_key"])
    assert [check.verdict for check in checks] == ["warn"] * 3
    assert "did you mean COMBEE_BATCH_SIZE?" in checks[0].remedy


def test_environment_and_file_are_looked_through(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert [check.verdict for check in settings_checks()] == ["ok"]
    (tmp_path / "combee.toml").write_text('batch_sizes = 3\napi_key = "x"\n')
    monkeypatch.setenv("COMBEE_MODLE", "x")
    monkeypatch.setenv("COMBEE_BASE_URL", "http://127.0.0.1:1/v1")
    told = " ".join(f"{check.says} {check.remedy}" for check in settings_checks())
    assert "COMBEE_MODLE" in told
    assert "batch_sizes is not a setting" in told
    assert "did you mean batch_size?" in told
    assert "api_key" in told
    assert "COMBEE_BASE_URL" not in told


def test_whatever_is_not_ok_has_a_remedy() -> None:
    found = [
        judge_broker(BrokerState(addresses=("a:1",), requests={})),
        *judge_topics(
            [],
            {"a": TopicReplicas(replication_factor=1, leaderless=1, under_replicated=1)},
            brokers=3,
            embedded=False,
        ),
        judge_clock(1e7, 0),
        judge_transactions({"batches[3]@2": 76.0}),
        judge_longest_transaction(61.0),
        judge_lag(GroupLag(group="scan", records=1, oldest_s=None, members=0)),
        judge_dead_letters(total=1, recent=1, reasons=[]),
        judge_batches([Unpublished(playbook="p", sequence=1, age_s=1e9)], timeout_s=1, retries=0),
        judge_model(ModelTrial(model="m", trouble="gone")),
        judge_disk(free_bytes=0, total_bytes=1),
    ]
    assert all(check.remedy for check in found if check.verdict != "ok")
    assert sum(check.verdict != "ok" for check in found) == len(found)


async def test_an_embedding_model_is_asked_where_one_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = load_settings(model="m", base_url="http://m/v1").model
    assert await embeddings(chosen) == []
    chosen = chosen.model_copy(update={"embedding_model": "e"})
    for vector, verdict in ((VECTOR, "ok"), ((), "fail")):
        monkeypatch.setattr("combee.assembly.backends.embedder", lambda _, vector=vector: Embeddings(vector))
        (check,) = await embeddings(chosen)
        assert (check.name, check.verdict) == ("embeddings", verdict)
    assert "3 dimensions" in judge_embeddings("e", dimensions=3, seconds=0.1).says


VECTOR = (0.1, 0.2, 0.3)


class Embeddings:
    def __init__(self, vector: Sequence[float]) -> None:
        self.vector = vector

    async def embed(self, texts: Sequence[str]) -> Embedded:
        return Embedded(vectors=[self.vector for _ in texts])

    async def close(self) -> None:
        pass


# ---- deadlines


async def test_a_probe_that_never_ends_is_a_finding() -> None:
    async def probe() -> list[Check]:
        await asyncio.Event().wait()
        return []

    (check,) = await within(0.01, "broker", probe, remedy="start it")
    assert (check.verdict, check.says) == ("fail", "no answer within 0.01 s")
    assert "start it" in check.remedy


async def test_a_probe_that_cannot_be_cancelled_is_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("combee.cli.doctor.probes.GRACE_S", 0.01)
    ended = asyncio.Event()

    async def probe() -> list[Check]:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await ended.wait()
        return []

    async with asyncio.timeout(5):
        (check,) = await within(0.01, "broker", probe)
    assert check.verdict == "fail"
    ended.set()


async def test_an_error_of_a_probe_is_a_finding() -> None:
    async def probe() -> list[Check]:
        raise FatalError("not allowed")

    (check,) = await within(1.0, "topics", probe)
    assert (check.verdict, check.says) == ("fail", "not allowed")
    assert check.remedy


# ---- the verb


def speak(monkeypatch: pytest.MonkeyPatch, *checks: Check) -> None:
    async def examine(_: Settings, __: object, ___: float) -> list[Check]:
        return list(checks)

    monkeypatch.setattr(doctor_checks, "examine", examine)


OK = Check(name="broker", verdict="ok", says="Kafka")
WARN = Check(name="model", verdict="warn", says="none", remedy="set one")
FAIL = Check(name="topics", verdict="fail", says="gone", remedy="make them")


def test_warnings_do_not_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    speak(monkeypatch, OK, WARN)
    assert run_json("doctor")["healthy"] is True
    assert not failed([OK, WARN])


def test_a_failed_check_exits_1_and_shows_its_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    speak(monkeypatch, OK, FAIL)
    found = run_json("doctor", code=1)
    assert found["healthy"] is False
    assert found["checks"][1] == {
        "name": "topics",
        "verdict": "fail",
        "says": "gone",
        "remedy": "make them",
    }
    text = run("doctor").stdout
    assert "→ make them" in text
    assert "1 failed" in text


def test_a_wrong_setting_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COMBEE_COPIES", "99")
    (check,) = run_json("doctor", code=1)["checks"]
    assert (check["name"], check["verdict"]) == ("settings", "fail")
    assert "COMBEE_COPIES" in check["says"]


def test_secrets_are_never_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setenv("COMBEE_SASL_PASSWORD", "word-of-passage")
    says = f"{KEY} word-of-passage sk-abcdefgh1234 http://u:hidden-one@host/v1"
    speak(monkeypatch, Check(name="model", verdict="warn", says=says, remedy=f"not {KEY}"))
    for arguments in (("doctor",), ("doctor", "--json")):
        shown = run(*arguments).stdout
        assert "***" in shown
        for secret in (KEY, "word-of-passage", "sk-abcdefgh1234", "hidden-one"):
            assert secret not in shown


def test_text_of_others_cannot_steer_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    speak(monkeypatch, Check(name="model", verdict="warn", says="\x1b[2J[red]x", remedy="\x07"))
    shown = run("doctor").stdout
    assert "\x1b[2J" not in shown
    assert "\x07" not in shown
    assert "[red]x" in shown


def test_the_disk_that_is_looked_at_holds_the_data_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Path] = []

    class Usage:
        free, total = 1 << 40, 1 << 41

    def disk_usage(path: Path) -> Usage:
        asked.append(path)
        return Usage()

    monkeypatch.setattr("shutil.disk_usage", disk_usage)
    monkeypatch.setenv("COMBEE_DATA_DIR", str(tmp_path / "not" / "made" / "yet"))
    assert doctor_surroundings.disk_check(load_settings()).verdict == "ok"
    assert asked == [tmp_path]
