"""The first page: success over time, cost, what waits, who may teach; and the settings in force."""

import pytest

from combee.core.evaluation.outcomes.report import curve_of
from combee.core.gate.gate import Gate
from combee.core.gate.policy import EVERYBODY, TrustPolicy
from combee.core.log.live.values import LivePlaybook, LiveVersion, Snapshot, window_text
from combee.core.playbook.versions import empty
from combee.dashboard.views import charts
from combee.dashboard.views.rows import dead_rows, setting_rows, waiting_rows
from combee.log.reports.cost import LessonCost, by_day, cost_texts, of_lessons
from combee.log.reports.waiting import trust_facts, waiting
from combee.process.settings.loading import load_settings
from combee_schemas.base import DAY_MS
from combee_schemas.dead_letter import DeadLetter, LetterId, Resolution
from combee_schemas.gate import Judge, Verdict
from combee_schemas.outcome import Figures, Measure, OutcomeStatistics, VersionOutcomes
from combee_schemas.playbook import Entry, Label, Playbook, TaughtBy
from support.outcomes import by_version
from support.pictures import picture

SECRET = "sk-this-is-a-secret-key"  # noqa: S105 - a made-up one


# ---- success over time


def test_success_is_drawn_over_time_with_interval_baseline_and_a_mark_for_each_version_that_changed() -> None:
    curve = curve_of(by_version((0, 2, 38), (1, 20, 20), (2, 36, 4)))
    made = (
        LiveVersion(version=1, at_ms=1_001, changes={"add": 3}),
        LiveVersion(version=2, at_ms=1_002, changes={"tag": 3}),
    )
    drawn = charts.success(curve, made)
    low, width, line, marks = drawn["series"]
    assert [point["value"] for point in line["data"]] == [[1_000, 5.0], [1_001, 50.0], [1_002, 90.0]]
    assert [point["version"] for point in line["data"]] == [0, 1, 2]
    assert line["data"][1]["name"] == "version 1: 50 % (35 to 65), 40 runs"
    for (_, below), (_, span), point in zip(low["data"], width["data"], line["data"], strict=True):
        assert below < point["value"][1] < below + span
    assert line["markLine"]["data"] == [{"yAxis": 5.0}]
    assert [(mark["version"], mark["name"]) for mark in marks["data"]] == [(1, "version 1: +3")]
    assert (drawn["yAxis"]["min"], drawn["yAxis"]["max"]) == (0, 100)


def test_scores_are_drawn_as_they_are_and_nothing_is_no_error() -> None:
    measure = Measure(name="reward", n=30, mean=3.5, m2=30.0)
    scored = VersionOutcomes(version=1, figures=Figures(runs=30, scores=(measure,)), last_at_ms=5)
    drawn = charts.success(curve_of(OutcomeStatistics(line="a", versions=(scored,))), ())
    assert drawn["series"][2]["data"][0]["value"] == [5, 3.5]
    assert "max" not in drawn["yAxis"]
    assert charts.success(curve_of(None), ())["series"][2]["data"] == []


# ---- cost


def test_a_days_cost_is_told_only_where_all_its_versions_are_known() -> None:
    def versions(first: int) -> tuple[LiveVersion, ...]:
        days = ((1, 100), (1, 50), (2, 70), (3, 5))
        return tuple(
            LiveVersion(version=first + n, at_ms=day * DAY_MS + n, tokens=tokens, cost=tokens / 1_000)
            for n, (day, tokens) in enumerate(days)
        )

    whole = LivePlaybook(name="a", versions=versions(1), spend_tokens=6, spend_cost=0.006)
    assert [(day.day, day.tokens, round(day.cost, 3)) for day in by_day([whole], 3 * DAY_MS)] == [
        (1, 150, 0.15),
        (2, 70, 0.07),
        (3, 6, 0.006),
    ]
    cut = LivePlaybook(name="b", versions=versions(500))
    assert [day.day for day in by_day([whole, cut], 3 * DAY_MS)] == [2, 3]
    assert [day.tokens for day in by_day([], 3 * DAY_MS)] == [0]


def test_a_lesson_costs_what_the_known_versions_cost_over_what_they_added_and_is_still_there() -> None:
    entries = tuple(Entry(id=f"e-{n}", section="s", content="c", created_version=n) for n in (1, 4, 5))
    book = empty("a").model_copy(update={"version": 5, "entries": entries})
    made = tuple(LiveVersion(version=n, at_ms=n, tokens=300, cost=0.002) for n in (4, 5))
    whole = tuple(LiveVersion(version=n, at_ms=DAY_MS + n, tokens=300, cost=0.002) for n in (1, 2))
    cost = of_lessons([LivePlaybook(name="a", versions=made), LivePlaybook(name="new")], lambda _: book)
    assert (cost.lessons, cost.tokens, round(cost.cost, 3)) == (2, 600, 0.004)
    days = by_day([LivePlaybook(name="a", versions=made, spend_tokens=600, spend_cost=0.004)], 5)
    assert cost_texts(days, cost, is_priced=True) == {
        "today": "600 tokens, 0.004 in money",
        "a lesson": "300 tokens, 0.002 in money, on average of 2",
    }
    assert cost_texts(days, LessonCost(0, 0, 0.0), is_priced=False) == {"today": "600 tokens"}
    two_days = by_day([LivePlaybook(name="a", versions=whole, spend_tokens=9)], 2 * DAY_MS)
    assert cost_texts(two_days, LessonCost(0, 0, 0.0), is_priced=False)["1970-01-02"] == "600 tokens"
    assert charts.cost_by_day(two_days)["series"][0]["data"] == [0.004, 0]


# ---- what waits for a person


MEASURED = Verdict(playbook="a", candidate=3, production=2, judge="evaluate", accepts=True)


def gate(name: str, *judges: Judge, since_ms: int, verdicts: tuple[Verdict, ...] = ()) -> Gate:
    return Gate(
        production=Label(playbook=name, label="production", version=2, gate=judges),
        candidate=Label(playbook=name, label="candidate", version=3, moved_at_ms=since_ms, verdicts=verdicts),
    )


def test_what_waits_for_a_person_is_listed_with_where_it_is_decided() -> None:
    approved = MEASURED.model_copy(update={"judge": "approve"})
    gates = {
        "a": gate("a", "evaluate", "canary", "approve", since_ms=9, verdicts=(MEASURED,)),
        "b": gate("b", "approve", since_ms=5),
        "measured alone": gate("c", "evaluate", since_ms=1),
        "approved": gate("d", "evaluate", "approve", since_ms=1, verdicts=(approved,)),
        "none": Gate(production=Label(playbook="e", label="production", version=1, gate=("approve",))),
    }
    proposed = Entry(id="e-1", section="s", content="perhaps", state="proposed")
    books = {"c": empty("c").model_copy(update={"version": 1, "entries": (proposed,)}), "d": empty("d")}
    letters = picture(letter()).snapshot(0)
    now = letters.model_copy(update={"playbooks": (LivePlaybook(name="p", paused="9 of 8 tokens spent"),)})
    rows = waiting_rows(waiting(gates, books, now))
    assert [row["what"] for row in rows] == [
        "approve version 3 of b",
        "approve version 3 of a",
        "p is paused",
        "1 dead letter",
        "1 proposed entry of c",
    ]
    assert rows[0]["more"] == "agents read version 2"
    assert rows[1]["more"] == "agents read version 2; evaluate accepts; canary is awaited, too"
    assert [row["href"] for row in rows[2:]] == ["/playbook?name=p", "/dead-letters", "/playbook?name=c"]
    assert waiting({}, {}, Snapshot(revision=0, at_ms=0)) == []


def letter() -> DeadLetter:
    return DeadLetter(
        origin_topic="reflections",
        origin_partition=0,
        origin_offset=1,
        service="shuffle",
        reason="r",
        playbook="a",
    )


def test_a_dead_letter_has_its_id_and_may_be_retried_until_somebody_decided() -> None:
    seen = picture()
    for offset in (6, 7):
        seen.take(letter(), 1_000, f"0-{offset}")
    decided = Resolution(
        letter=LetterId(partition=0, offset=6),
        decision="dropped",
        origin_topic="reflections",
        origin_partition=0,
        origin_offset=1,
    )
    for _ in range(2):  # the first decision holds, and counts once
        seen.take(decided, 1_000, "0-8")
    now = seen.snapshot(0)
    assert [(row["id"], row["state"], row["is_open"]) for row in dead_rows(now)] == [
        ("0-7", "open", True),
        ("0-6", "dropped", False),
    ]
    assert now.dead_letters == 1


# ---- who may teach


def test_the_posture_is_told_and_whether_anybody_proves_who_they_are() -> None:
    policy = TrustPolicy(by_pattern={EVERYBODY: "team", "community/*": "public"})
    known = {"trust": "team", "version": 1}
    proven = (TaughtBy(name="shop", batches=1, reflections=3),)
    books: list[Playbook] = [
        *(empty(name).model_copy(update=known) for name in ("a", "b", "c", "d")),
        empty("shop").model_copy(update=known | {"taught_by": proven}),
        empty("a@branch").model_copy(update=known),
        empty("unlearned"),
    ]
    assert trust_facts(policy, books) == {
        "posture": "team for every playbook, public for community/*",
        "proof": "team: 1 source proves who they are (shop); team: nobody proves who they are (a, b, c and 1 more)",
    }
    assert trust_facts(policy, [])["proof"] == "no playbook has learned anything yet"


# ---- windows


def test_a_window_never_has_more_than_it_holds() -> None:
    assert [window_text(*each) for each in ((0, 5), (5, 5), (35, 5))] == ["0 of 5", "5 of 5", "35 waiting"]
    assert LivePlaybook(name="a", waiting=35, batch_size=5).window == "35 waiting"


# ---- settings


def test_every_setting_is_listed_with_where_it_comes_from_and_no_secret(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    file = tmp_path_factory.mktemp("settings") / "mine.toml"
    file.write_text(
        'max_wait_s = 7\nbatch_size = 3\n[prices."m"]\nin = 0.4\nout = 1.6\n[trust]\n"community/*" = "public"\n'
    )
    file.chmod(0o600)
    monkeypatch.setenv("COMBEE_CONFIG", str(file))
    monkeypatch.setenv("COMBEE_BATCH_SIZE", "12")
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    monkeypatch.setenv("COMBEE_SASL_PASSWORD", SECRET)
    monkeypatch.setenv("COMBEE_OTEL_ENDPOINT", f"https://me:{SECRET}@telemetry.test")
    monkeypatch.setenv("COMBEE_GATEWAY_KEYS", f'{{"keys": [{{"name": "a", "key": "{SECRET}"}}]}}')
    rows = {row["name"]: row for row in setting_rows(load_settings(copies=1, max_wait_s=None))}
    told = {name: (rows[f"COMBEE_{name}"]["value"], rows[f"COMBEE_{name}"]["origin"]) for name in (
        "COPIES", "BATCH_SIZE", "MAX_WAIT_S", "API_KEY", "SASL_PASSWORD", "GATEWAY_PORT", "BASE_URL", "TRUST",
    )}  # fmt: skip
    assert told == {
        "COPIES": ("1", "flag"),
        "BATCH_SIZE": ("12", "environment: COMBEE_BATCH_SIZE"),
        "MAX_WAIT_S": ("7.0", f"file: {file}"),
        "API_KEY": ("set, not shown", "environment: OPENAI_API_KEY"),
        "SASL_PASSWORD": ("set, not shown", "environment: COMBEE_SASL_PASSWORD"),
        "GATEWAY_PORT": ("8750", "default"),
        "BASE_URL": ("not set", "default"),
        "TRUST": ("community/*: public", f"file: {file}"),
    }
    assert rows["COMBEE_PRICES"]["value"] == 'm: {"price_in":0.4,"price_out":1.6}'
    assert SECRET not in str(rows)
    assert "telemetry.test" in rows["COMBEE_OTEL_ENDPOINT"]["value"]
    assert {row["about"] for row in rows.values() if row["about"]}


def test_settings_are_found_by_words_and_those_that_are_no_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COMBEE_CONFIG", raising=False)
    settings = load_settings(batch_size=9)
    assert "COMBEE_BATCH_SIZE" in {row["name"] for row in setting_rows(settings, only_set=True)}
    assert "COMBEE_COPIES" not in {row["name"] for row in setting_rows(settings, only_set=True)}
    assert [row["name"] for row in setting_rows(settings, "gateway_port")] == ["COMBEE_GATEWAY_PORT"]
