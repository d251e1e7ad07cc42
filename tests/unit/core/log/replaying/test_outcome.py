"""What a replay came to, by what entries say."""

from combee.core.log.replaying.outcome import audits, compared, spent
from combee_schemas.base import Usage
from combee_schemas.plan import Plan
from combee_schemas.playbook import AppliedBatch, LevelAudit, Playbook
from support.playbooks import BASE, entry


def saying(*contents: str) -> Playbook:
    entries = tuple(entry(f"x-{n:05}", content) for n, content in enumerate(contents))
    return BASE.model_copy(update={"entries": entries})


def test_entries_are_compared_by_what_they_say_and_not_by_their_ids() -> None:
    before = saying("Ask for the order number first.", "Refund within 30 days.", "Never share a voucher.")
    after = saying("Be kind.", "Ask for the order number first", "Refund within 14 days.")
    found = compared(before, after)
    assert found.kept == 1
    assert found.added == ("Be kind.",)
    assert found.lost == ("Never share a voucher.",)
    assert found.changed == (("Refund within 30 days.", "Refund within 14 days."),)


def test_a_playbook_beside_itself_is_kept_whole() -> None:
    before = saying("Refund within 30 days.", "Refund within 14 days.")
    found = compared(before, before)
    assert (found.kept, found.added, found.lost, found.changed) == (2, (), (), ())


def applied(*levels: LevelAudit, calls: int = 3) -> Playbook:
    plan = Plan(batch_id="b", playbook="p", sequence=1, widths=(1,), base_version=0, reflections=4)
    batch = AppliedBatch(plan=plan, audit=levels, usage=Usage(calls=calls, reused=1))
    return BASE.model_copy(update={"batch": batch})


def test_what_became_of_reflections_is_summed_by_level_and_for_the_playbook() -> None:
    deep = applied(LevelAudit(new=4), LevelAudit(new=3, lost=1), LevelAudit(new=2, known=1, lost=1))
    flat = applied(LevelAudit(new=5, dropped=1), LevelAudit(new=5, dropped=1))
    found = audits([deep, flat, BASE])
    assert found.levels == (LevelAudit(new=9, dropped=1), LevelAudit(new=3, lost=1))
    assert found.playbook == LevelAudit(new=7, known=1, dropped=1, lost=1)
    assert spent([deep, flat, BASE]) == Usage(calls=6, reused=2)
