"""The content of a branch as its playbook's next version."""

from combee.core.playbook import versions
from combee.core.playbook.lineage.branching import Adoption, taken_over
from combee.core.playbook.lineage.recomputing import Recomputation
from combee.core.playbook.versions import empty
from combee_schemas.playbook import Adopted, Asked, Entry
from combee_schemas.scan import Seen
from support.playbooks import PLENTY, update_of


def entry(number: int, content: str, **fields: object) -> Entry:
    return Entry.model_validate(
        {"id": f"misc-{number:05d}", "section": "OTHERS", "content": content, **fields}
    )


def test_a_proposal_names_the_entries_that_it_is_about_by_their_new_ids() -> None:
    forked = empty("p").model_copy(update={"version": 1, "entries": (entry(1, "from before"),), "next_id": 2})
    current = forked.model_copy(
        update={"version": 2, "entries": (*forked.entries, entry(2, "only here")), "next_id": 3}
    )
    links = {"state": "proposed", "replaces": ("misc-00002", "misc-00001"), "rivals": ("misc-00002",)}
    branch = forked.model_copy(
        update={
            "name": "p@short",
            "entries": (*forked.entries, entry(2, "only there"), entry(3, "waits", **links)),
            "next_id": 4,
        }
    )
    adoption = Adoption(line=branch, target=branch, forked=forked, unread=0)
    made = taken_over(adoption, current, branch.model_copy(update={"name": "p"}))
    by_content = {one.content: one for one in made.entries}
    new = by_content["only there"].id
    assert new not in {"misc-00001", "misc-00002"}, "that id means another entry"
    assert by_content["waits"].replaces == (new, "misc-00001")
    assert by_content["waits"].rivals == (new,)


def test_a_proposal_does_not_take_the_place_of_another_entry_that_has_the_id_of_one_that_left_the_branch() -> (
    None
):
    forked = empty("p").model_copy(update={"version": 1, "next_id": 2})
    current = forked.model_copy(update={"version": 2, "entries": (entry(2, "on both"),), "next_id": 3})
    links = {"state": "proposed", "replaces": ("misc-00002",), "rivals": ("misc-00002",)}
    branch = forked.model_copy(
        update={"name": "p@short", "entries": (entry(3, "on both"), entry(4, "waits", **links)), "next_id": 5}
    )
    adoption = Adoption(line=branch, target=branch, forked=forked, unread=0)
    made = taken_over(adoption, current, branch.model_copy(update={"name": "p"}))
    by_content = {one.content: one for one in made.entries}
    assert by_content["on both"].id == "misc-00002"
    assert (by_content["waits"].replaces, by_content["waits"].rivals) == ((), ())


def test_what_the_playbook_has_batched_beyond_what_waits_is_asked_about_again_after_an_adoption() -> None:
    waiting, batched, later = (Asked(offset=at, manifest_offset=9) for at in (3, 7, 8))
    before = Asked(offset=5, manifest_offset=4)
    forked = empty("p").model_copy(update={"version": 1, "through_offset": 2, "manifest_offset": 4})
    branch = forked.model_copy(update={"name": "p@short", "again": (waiting, before, batched, later)})
    adoption = Adoption(line=branch, target=branch, forked=forked, unread=0, learned=frozenset({7}))
    made = taken_over(adoption, forked, branch.model_copy(update={"name": "p"}))
    assert made.again == (before, batched)
    adopted = made.model_copy(update={"version": 2, "adopted": Adopted(line="p@short", version=1)})
    book = Recomputation(branch, adopted, pending=dict.fromkeys(branch.again))
    book.follow(adopted, None)
    assert [*book.pending] == [*branch.again], "what waits goes with its batch"
    held = update_of(
        adopted, [], [Seen(reflection_id=f"r-{one.offset}", offset=one.offset) for one in (waiting, later)]
    )
    book.follow(versions.after_update(adopted, held, budget_tokens=PLENTY, now_ms=0), held)
    assert [*book.pending] == [before, batched]
