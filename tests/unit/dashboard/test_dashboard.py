"""What the dashboard's pages show, without a browser."""

from combee.core import identity
from combee.core.live.picture import Picture
from combee.core.live.values import LivePlaybook, LiveVersion, Snapshot, Stage
from combee.dashboard import charts, frame, views, wording
from combee_schemas.batch import Batch, Member
from combee_schemas.dead_letter import DeadLetter
from combee_schemas.plan import Plan
from combee_schemas.playbook import Playbook
from combee_schemas.scan import Partial
from support.flat import changed, flat

BATCH = identity.batch_id("a", 1)
MANIFEST = flat(
    Batch, batch_id=BATCH, playbook="a", sequence=1, seed=1, copies=2, widths=(3, 1), base_version=0, reason="size",
    members=tuple(Member(offset=n, reflection_id=f"r{n}") for n in range(4)), through_offset=3, batch_size=4,
)  # fmt: skip
PLAN = Plan(batch_id=BATCH, playbook="a", sequence=1, widths=(3, 1), base_version=0, reflections=4)
FAILED = flat(
    Partial, plan=PLAN, node_id="n", parent_id="p", level=0, index=1, status="failed",
    reason="password=hunter2hunter2"
)  # fmt: skip


def picture(*messages: Batch | Partial | Playbook | DeadLetter) -> Picture:
    seen = Picture(batch_size=4)
    for message in messages:
        seen.take(message, 1_000)
    return seen


def test_a_tree_is_shown_root_first_with_a_mark_and_words_for_every_node() -> None:
    (batch,) = picture(MANIFEST, FAILED).snapshot(0).batches
    root, groups = views.levels(batch)
    assert (root.name, root.done, groups.name, groups.done) == (
        "level 1 · root",
        "0 of 1",
        "level 0 · groups",
        "1 of 3",
    )
    ((first, *others),) = groups.families
    assert [first.kind, *(chip.kind for chip in others)] == ["ready", "failed", "ready"]
    assert [chip.kind for chip in root.families[0]] == ["waiting"]
    assert "node 0 of level 0: asks the model" in first.title


def test_the_children_of_one_node_stand_together() -> None:
    wide = changed(MANIFEST, widths=(6, 2, 1))
    (batch,) = picture(wide).snapshot(0).batches
    assert [[len(family) for family in level.families] for level in views.levels(batch)] == [[1], [2], [3, 3]]


def test_secrets_are_not_shown() -> None:
    (batch,) = picture(MANIFEST, FAILED).snapshot(0).batches
    letter = DeadLetter(
        origin_topic="traces",
        origin_partition=0,
        origin_offset=1,
        service="reflect",
        reason=FAILED.result.reason,
    )
    shown = [views.levels(batch)[1].families[0][1].title, str(views.dead_rows(picture(letter).snapshot(0)))]
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
    assert [level.done for level in views.levels(batch)] == ["1 of 1", "3 of 3"]
    assert views.headline(batch).endswith("version 1")


def test_the_oldest_batch_in_flight_is_the_running_one() -> None:
    later = changed(MANIFEST, batch_id=identity.batch_id("a", 2), sequence=2)
    version = flat(
        Playbook, name="a", version=1, origin="batch", batch_sequence=1, batch_id=BATCH, created_at_ms=5
    )
    flying = picture(MANIFEST, later).snapshot(0).batches
    landed = picture(MANIFEST, later, version).snapshot(0).batches
    assert [getattr(views.current_batch(one), "sequence", None) for one in (flying, landed, ())] == [
        1,
        2,
        None,
    ]


def test_a_topic_says_whether_its_readers_are_behind_and_for_how_long() -> None:
    behind, done, unread = views.cards(
        [
            Stage(name="a", offsets=9, lag=1200, lag_s=61),
            Stage(name="b", offsets=9, lag=0),
            Stage(name="c", offsets=9),
        ]
    )
    assert (behind.lag, behind.state) == ("1,200 open, oldest 61 s", "behind")
    assert [done.lag, unread.lag, done.state] == ["all done", "", "idle"]


def test_the_newest_versions_of_all_playbooks_come_first() -> None:
    books = (
        LivePlaybook(name="a", versions=(LiveVersion(version=1, at_ms=1), LiveVersion(version=2, at_ms=9))),
        LivePlaybook(name="b", versions=(LiveVersion(version=7, at_ms=5),)),
    )
    rows = views.version_rows(Snapshot(revision=0, at_ms=0, playbooks=books), most=2)
    assert [(row["name"], row["version"]) for row in rows] == [("a", 2), ("b", 7)]


def test_plots_show_what_was_measured_and_money_only_where_there_are_prices() -> None:
    version = LiveVersion(version=1, at_ms=7, batch_size=40, reflections=33, retention=0.5, tokens=900)
    free, priced = (
        LivePlaybook(name="a", versions=(version.model_copy(update={"cost": cost}),)) for cost in (0.0, 1.5)
    )
    assert [one["data"] for one in charts.batch_sizes(free)["series"]] == [[[7, 40]], [[7, 33]]]
    assert charts.retention(free)["series"][0]["data"] == [[7, 50.0]]
    assert [charts.cost(one)["series"][0]["data"] for one in (free, priced)] == [[[7, 900]], [[7, 1.5]]]


def test_a_rollback_has_no_retention_and_cost_nothing() -> None:
    back = LivePlaybook(name="a", versions=(LiveVersion(version=2, at_ms=7, origin="rollback"),))
    plots = (charts.retention(back), charts.cost(back), charts.batch_sizes(back))
    assert all(series["data"] == [] for plot in plots for series in plot["series"])


def test_whatever_is_in_a_name_stays_in_the_name() -> None:
    assert wording.address("a/b") == "/playbook?name=a/b"
    assert wording.address('x"&version=9', 2) == "/playbook?name=x%22%26version%3D9&version=2"


def test_an_address_is_a_page_or_it_is_not() -> None:
    there = (
        "/",
        "",
        "/batches",
        "/batches/b-1",
        "/playbook?name=a/b&version=2",
        "/learning",
        "/dead-letters#x",
    )
    assert [path for path in there if not frame.is_page(path)] == []
    assert [
        path for path in ("/nope", "/nope/nope", "/batches/b/c", "/playbooks/a") if frame.is_page(path)
    ] == []
