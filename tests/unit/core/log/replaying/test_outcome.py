"""What a replay came to, by what entries say."""

from combee.core.log.replaying.outcome import compared, spent
from combee_schemas.base import Usage
from combee_schemas.plan import Plan
from combee_schemas.playbook import AppliedBatch, Playbook
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
    assert found.gone == ("Never share a voucher.",)
    assert found.changed == (("Refund within 30 days.", "Refund within 14 days."),)


def test_a_playbook_beside_itself_is_kept_whole() -> None:
    before = saying("Refund within 30 days.", "Refund within 14 days.")
    found = compared(before, before)
    assert (found.kept, found.added, found.gone, found.changed) == (2, (), (), ())


def test_what_versions_took_is_summed_up() -> None:
    plan = Plan(batch_id="b", playbook="p", sequence=1, widths=(1,), base_version=0, reflections=4)
    batch = AppliedBatch(plan=plan, usage=Usage(calls=3, reused=1))
    version = BASE.model_copy(update={"batch": batch})
    assert spent([version, version, BASE]) == Usage(calls=6, reused=2)
