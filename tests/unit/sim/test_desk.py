"""The service desk: tickets that a reader judges, answered by house rules that agents learn."""

from random import Random

import pytest

from combee.core.methods import ace
from combee.core.playbook.versions import empty
from combee_schemas.playbook import Entry, Playbook
from combee_sim.family import desk
from combee_sim.family.blurring import blurred
from combee_sim.family.desk import HouseRule
from combee_sim.family.falsehoods import is_opposite, opposite
from combee_sim.family.insights import insight
from combee_sim.family.lessons import key, subject
from combee_sim.family.wordings import all_wordings
from combee_sim.fleet import measure
from combee_sim.inprocess import SimulatedModel
from support.rows import each_row


def book(*texts: str) -> Playbook:
    entries = tuple(
        Entry(id=f"misc-{n:05}", section="OTHERS", content=text) for n, text in enumerate(texts, 1)
    )
    return empty("desk").model_copy(update={"version": 1, "next_id": len(texts) + 1, "entries": entries})


@each_row("rule", desk.RULES)
def test_all_wordings_of_a_rule_are_one_lesson_and_its_opposite_and_its_blur_are_others(
    rule: HouseRule,
) -> None:
    plain = rule.wordings[0]
    assert all_wordings(plain) == rule.wordings
    assert {key(wording) for wording in rule.wordings} == {key(plain)}
    others = {opposite(plain), *map(blurred, rule.wordings)}
    assert key(plain) not in {key(str(other)) for other in others}
    assert {subject(text) for text in (*rule.wordings, rule.opposite)} == {rule.about}
    assert is_opposite(rule.opposite)
    assert not any(map(is_opposite, rule.wordings))


@each_row("ticket", desk.one_each(Random(1)))
def test_the_reflector_finds_the_rule_behind_a_ticket_and_its_right_answer(ticket: desk.Ticket) -> None:
    rule = desk.asked(ticket.text)
    assert rule is not None
    assert insight(ticket.text, rule.usual, ticket.target) == rule.wordings[0]
    assert insight(ticket.text, rule.usual, rule.usual) != rule.wordings[0]


@pytest.mark.parametrize("way", [0, 1, 2])
async def test_an_agent_is_right_about_a_ticket_if_and_only_if_its_playbook_says_the_rule(way: int) -> None:
    exam = desk.one_each(Random(2))
    half = [rule.wordings[way] for rule in desk.RULES[::2]]
    wrong = [rule.opposite for rule in desk.RULES[1::2]]
    for playbook, right in ((None, 0), (book(*half, *wrong), len(half)), (book(*desk.lessons()), len(exam))):
        assert (await measure(SimulatedModel(), playbook, exam)).right == right
    reply = await SimulatedModel().ask(ace.answer_prompt(book(*half), exam[0].text))
    assert reply.body["bullet_ids"] == ["misc-00001"]


def test_tickets_are_drawn_alike_from_the_same_seed_and_reach_every_rule() -> None:
    drawn = [next(tickets) for tickets in (desk.tickets(Random(3)),) for _ in range(300)]
    assert drawn[:20] == [next(again) for again in (desk.tickets(Random(3)),) for _ in range(20)]
    assert {desk.asked(ticket.text) for ticket in drawn} == set(desk.RULES)
