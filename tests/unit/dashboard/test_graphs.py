"""The flow and a batch as graphs: what is an edge, what a node says, and that it is a tree."""

from typing import Any

from combee.core.log.live.values import LiveBatch, Stage
from combee.dashboard.views import graphs
from combee.log.inspection.live import STAGES
from combee_schemas import topics
from combee_schemas.batch import Batch
from support.flat import changed
from support.pictures import FAILED, MANIFEST, picture
from support.rows import each_row

BY_NAME = {topic.name: topic for topic in topics.TOPICS} | {graphs.SCAN: topics.GROUPS}


def batch(*widths: int) -> LiveBatch:
    manifest: Batch = changed(MANIFEST, widths=widths)
    (shown,) = picture(manifest, FAILED).snapshot(0).batches
    return shown


def below(node: dict[str, Any]) -> list[Any]:
    return [below(child) for child in node.get("children", ())]


@each_row(("source", "target"), [*graphs.EDGES, *graphs.ASIDE])
def test_every_edge_of_the_flow_is_one_that_the_map_of_topics_has(source: str, target: str) -> None:
    if source in BY_NAME:
        assert target in BY_NAME[source].read_by
    else:
        assert source in BY_NAME[target].written_by


def test_every_topic_whose_figures_are_known_is_in_the_drawing_and_no_two_share_a_place() -> None:
    drawn = {*graphs.PLACES, *(topic.name for topic in topics.SCAN)}
    assert {topic.name for topic in STAGES} <= drawn
    for places in (graphs.PLACES, graphs.TALL):
        assert len(set(places.values())) == len(graphs.PLACES)


def test_an_edge_is_coloured_while_records_go_along_it_and_a_topic_says_what_waits() -> None:
    drawn = graphs.flow(
        [
            Stage(name="traces", offsets=9, rate_per_s=2.5, lag=0),
            Stage(name="scan.0", offsets=4, rate_per_s=1, lag=2, lag_s=3),
            Stage(name="scan.1", offsets=4, rate_per_s=2, lag=5, lag_s=9),
            Stage(name="updates", offsets=1),
        ]
    )
    (series,) = drawn.options["baseOption"]["series"]
    flowing = {
        (one["source"], one["target"]) for one in series["links"] if "flowing" in one["lineStyle"]["color"]
    }
    assert flowing == {
        ("agents", "traces"),
        ("traces", "reflect"),
        ("shuffle", graphs.SCAN),
        (graphs.SCAN, "scan"),
    }
    labels = {one["name"]: one["label"]["formatter"] for one in series["data"]}
    assert labels["traces"] == "{name|traces}\n{figure|2.5 /s}\n{figure|all done}"
    assert labels[graphs.SCAN].endswith("{figure|3.0 /s}\n{behind|7 open, oldest 9 s}")
    assert labels["updates"] == "{name|updates}"
    assert "traces: 2.5 /s all done" in drawn.words


def test_a_batch_is_drawn_as_its_tree_with_a_shape_and_a_mark_for_what_went_wrong() -> None:
    (root,) = graphs.tree(batch(6, 2, 1)).options["baseOption"]["series"][0]["data"]
    assert below(root) == [[[], [], []], [[], [], []]]
    leaves = [leaf for middle in root["children"] for leaf in middle["children"]]
    assert [leaf["symbol"] for leaf in leaves] == ["circle", "rect", *["circle"] * 4]
    assert (leaves[1]["label"]["formatter"], leaves[1]["name"]) == (
        "×",
        "node 1 of level 0: failed: it has no result",
    )


def test_a_node_that_was_left_out_is_drawn_so_whether_its_batch_is_over_or_not() -> None:
    shown = batch(3, 1)
    late = shown.nodes[0].model_copy(update={"state": "left_out"})
    for version in (None, 7):
        update = {"nodes": (late, *shown.nodes[1:]), "version": version}
        (root,) = graphs.tree(shown.model_copy(update=update)).options["baseOption"]["series"][0]["data"]
        leaf = root["children"][0]
        assert (leaf["symbol"], leaf["label"]["formatter"]) == ("circle", "»")
        assert leaf["name"] == "node 0 of level 0: left out: late, and other nodes cover all its input"
