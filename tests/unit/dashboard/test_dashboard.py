"""What the dashboard's pages show, without a browser."""

from combee.core.log.live.values import LivePlaybook, LiveVersion, Snapshot, Stage
from combee.core.playbook.retention import warnings
from combee.core.playbook.side_by_side import Line, LineTotals
from combee.core.playbook.versions import empty
from combee.dashboard.views import charts, graphs, outcomes, rows, wording
from combee.dashboard.views.addresses import is_page
from combee.log.reports.outcomes import newest_lines
from combee_schemas.base import Usage
from combee_schemas.dead_letter import DeadLetter
from combee_schemas.outcome import Figures, OutcomeStatistics, VersionOutcomes
from combee_schemas.plan import Branch, BranchSettings
from combee_schemas.playbook import Audit, Playbook
from support.flat import flat
from support.pictures import BATCH, FAILED, MANIFEST, picture


def test_the_nodes_of_a_batch_are_listed_root_first_with_a_mark_and_words_for_each() -> None:
    (batch,) = picture(MANIFEST, FAILED).snapshot(0).batches
    listed = rows.node_rows(batch)
    assert [row["node"] for row in listed] == [
        "level 1 · root · 0",
        "level 0 · 0",
        "level 0 · 1",
        "level 0 · 2",
    ]
    assert [row["kind"] for row in listed] == ["waiting", "ready", "failed", "ready"]
    assert [row["state"] for row in listed[:2]] == [
        "waits for its children",
        "calls the model, or is about to",
    ]
    assert all(row["icon"] for row in listed)
    assert rows.headline(batch) == "a · batch 1 · 4 reflections, closed by size · 1 of 4 nodes done"


def test_a_playbook_stands_before_its_branches_with_what_they_do_otherwise() -> None:
    own = Branch(of="a", version=3, sequence=1, settings=BranchSettings(batch_size=5, carry=False))
    stored = {name: empty(name).model_copy(update={"version": 4}) for name in ("a@x", "a-b", "a")}
    stored["a@x"] = stored["a@x"].model_copy(update={"branch": own})
    listed, _ = rows.playbook_rows(Snapshot(revision=0, at_ms=0), stored, {})
    assert [(row["name"], row["forked"]) for row in listed] == [
        ("a", "–"),
        ("a@x", "version 3: batch_size 5, carry off"),
        ("a-b", "–"),
    ]
    live = LivePlaybook(name="a@x", waiting=2, batch_size=5, spend_tokens=1_000, paused="1,000 of 900 tokens")
    learned = LineTotals(
        versions=2, batches=1, reflections=5, usage=Usage(calls=3, tokens_in=2_000), retention=0.8
    )
    lines = [
        Line(playbook=stored["a"], since=3, learned=LineTotals()),
        Line(playbook=stored["a@x"], since=3, learned=learned),
    ]
    first, second = rows.line_rows(lines, [live], stored)
    assert (first["name"], first["paused"], first["retention"], first["window"]) == ("a", "–", "–", "–")
    assert second == {
        "name": "a@x",
        "forked": "version 3: batch_size 5, carry off",
        "version": 4,
        "entries": "0",
        "versions": 2,
        "reflections": 5,
        "calls": 3,
        "tokens": "2,000",
        "retention": "80 %",
        "omitted": "–",
        "today": "1,000",
        "window": "2 of 5",
        "paused": "1,000 of 900 tokens",
    }


def test_the_page_of_all_playbooks_has_the_warnings_of_the_status() -> None:
    audit = Audit(new=100, said=97, verified=51, carried=49)
    batch = {"origin": "batch", "batch_id": "b", "batch_sequence": 1}
    claimed = flat(Playbook, name="a", version=1, audit=audit, **batch)
    (text,) = warnings(claimed).values()
    assert rows.warnings_text(picture(claimed).snapshot(0).playbooks) == f"warning: a: {text}"
    quiet = flat(Playbook, name="a", version=1, audit=Audit(new=100), **batch)
    assert rows.warnings_text(picture(quiet).snapshot(0).playbooks) == ""


def test_secrets_are_not_shown() -> None:
    (batch,) = picture(MANIFEST, FAILED).snapshot(0).batches
    letter = DeadLetter(
        origin_topic="traces",
        origin_partition=0,
        origin_offset=1,
        service="reflect",
        reason=FAILED.result.reason,
    )
    shown = [
        str(rows.node_rows(batch)),
        str(graphs.tree(batch)),
        str(rows.dead_rows(picture(letter).snapshot(0))),
    ]
    assert "password=***" in shown[0]
    assert all("hunter2" not in one for one in shown)


def test_a_batch_that_became_a_version_is_done_whatever_was_read_of_it() -> None:
    version = flat(
        Playbook,
        name="a",
        version=1,
        origin="batch",
        batch_sequence=1,
        batch_id=BATCH,
        through_offset=3,
        created_at_ms=5,
    )
    (batch,) = picture(MANIFEST, version).snapshot(0).batches
    assert {row["kind"] for row in rows.node_rows(batch)} == {"done"}
    assert graphs.tree(batch).words.endswith("3 → 1: 4 done")
    assert rows.headline(batch).endswith("version 1")


def test_a_topic_says_whether_its_readers_are_behind_and_for_how_long() -> None:
    behind, done, unread = map(
        rows.card,
        (
            Stage(name="a", offsets=9, lag=1200, lag_s=61),
            Stage(name="b", offsets=9, lag=0),
            Stage(name="c", offsets=9),
        ),
    )
    assert (behind.lag, behind.state) == ("1,200 open, oldest 61 s", "behind")
    assert [done.lag, unread.lag, done.state] == ["all done", "", "idle"]


def test_the_newest_versions_of_all_playbooks_come_first() -> None:
    books = (
        LivePlaybook(name="a", versions=(LiveVersion(version=1, at_ms=1), LiveVersion(version=2, at_ms=9))),
        LivePlaybook(name="b", versions=(LiveVersion(version=7, at_ms=5),)),
    )
    listed = rows.version_rows(Snapshot(revision=0, at_ms=0, playbooks=books), most=2)
    assert [(row["name"], row["version"]) for row in listed] == [("a", 2), ("b", 7)]
    perhaps = LiveVersion(version=3, at_ms=9, entries=4, proposed=2)
    book = LivePlaybook(name="c", versions=(perhaps,))
    (row,) = rows.version_rows(Snapshot(revision=0, at_ms=0, playbooks=(book,)))
    assert row["entries"] == "4 (+2 proposed)"


def test_plots_show_what_was_measured_and_money_only_where_there_are_prices() -> None:
    version = LiveVersion(version=1, at_ms=7, batch_size=40, reflections=33, retention=0.5, tokens=900)
    free, priced = (
        LivePlaybook(name="a", versions=(version.model_copy(update={"cost": cost}),)) for cost in (0.0, 1.5)
    )
    assert [one["data"] for one in charts.batch_sizes(free)["series"]] == [[[7, 40]], [[7, 33]]]
    assert [one["data"] for one in charts.retention(free)["series"]] == [[[7, 50.0]], [], [], [], [], []]
    audited = version.model_copy(
        update={"audit": Audit(new=2, known=3, dropped=1, omitted=4, said=9, verified=5)}
    )
    series = charts.retention(LivePlaybook(name="a", versions=(audited,)))["series"]
    assert {one["name"]: one["data"] for one in series} == {
        "new or known": [[7, 50.0]], "known": [[7, 30.0]], "dropped": [[7, 10.0]], "omitted": [[7, 40.0]],
        "said": [[7, 90.0]], "verified": [[7, 50.0]],
    }  # fmt: skip
    assert [charts.cost(one)["series"][0]["data"] for one in (free, priced)] == [[[7, 900]], [[7, 1.5]]]


def test_a_rollback_has_no_retention_and_cost_nothing() -> None:
    back = LivePlaybook(name="a", versions=(LiveVersion(version=2, at_ms=7, origin="rollback"),))
    plots = (charts.retention(back), charts.cost(back), charts.batch_sizes(back))
    assert all(series["data"] == [] for plot in plots for series in plot["series"])


def test_whatever_is_in_a_name_stays_in_the_name() -> None:
    assert wording.address("a/b") == "/playbook?name=a/b"
    assert wording.address('x"&version=9', 2) == "/playbook?name=x%22%26version%3D9&version=2"
    assert wording.address("a", 2, "str-1&name=b") == "/playbook?name=a&version=2&entry=str-1%26name%3Db"
    assert wording.search_address("a&b c") == "/search?text=a%26b+c"


def test_an_address_is_a_page_or_it_is_not() -> None:
    there = (
        "/",
        "",
        "/flow",
        "/search?text=a",
        "/batches",
        "/batches/b-1",
        "/playbook?name=a/b&version=2",
        "/learning",
        "/dead-letters#x",
    )
    assert [path for path in there if not is_page(path)] == []
    assert [path for path in ("/nope", "/nope/nope", "/batches/b/c", "/playbooks/a") if is_page(path)] == []


def test_outcomes_are_told_by_version_with_what_changed_at_each() -> None:
    def statistics(line: str, *numbers: int, at_ms: int = 0) -> OutcomeStatistics:
        figures = Figures(runs=4, successes=3, failures=1)
        versions = tuple(VersionOutcomes(version=number, figures=figures) for number in numbers)
        return OutcomeStatistics(line=line, versions=versions, updated_at_ms=at_ms)

    known = {name: empty(name).model_copy(update={"version": 9}) for name in ("a", "a@x", "b", "c", "d")}
    said = [
        statistics("a", *range(12), at_ms=5),
        statistics("new", 0, at_ms=5),
        statistics("a@x", 1, at_ms=4),
        statistics("b", at_ms=9),
        statistics("gone", 1, at_ms=8),
        statistics("c", 1, at_ms=3),
        statistics("d", 1, at_ms=2),
    ]
    lines = newest_lines({each.line: each for each in said}, known)
    assert [line.name for line in lines] == ["a", "new", "a@x", "c", "d"]
    changes = {("a", 9): {"add": 2, "evict": 1, "tag": 4}, ("a", 8): {"tag": 1}}
    listed = outcomes.outcome_rows(lines, changes)
    assert [row["version"] for row in listed if row["line"] == "a"] == list(range(9, -1, -1))
    assert [row["named"] for row in listed if row["line"] == "new"] == ["no playbook"]
    assert listed[0]["success"] == "75 % (30 to 95)"
    assert [row["changes"] for row in listed[:3]] == ["+2 -1", "nothing", "–"]
