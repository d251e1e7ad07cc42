from random import Random

from combee_sim.family.conventions import infer, read_convention
from combee_sim.family.family import latent, lessons, one_each, questions, read_question, right
from combee_sim.family.quantities import QUANTITIES


def rng(seed: int) -> Random:
    return Random(seed)


def test_the_family_has_at_least_sixty_distinct_conventions_to_learn() -> None:
    assert len({quantity.name for quantity in QUANTITIES}) >= 60
    assert len(set(lessons())) == len(QUANTITIES)


def test_a_lesson_is_a_sentence_that_reads_back_as_its_convention() -> None:
    for convention in map(latent, QUANTITIES):
        assert read_convention(convention.sentence()) == convention
        assert read_convention(f"Insight:  {convention.sentence().upper()} Always.") == convention


def test_question_and_target_give_the_convention_away_and_the_question_alone_does_not() -> None:
    for quantity, question in zip(QUANTITIES, one_each(rng(3)), strict=True):
        asked = read_question(question.text)
        assert asked is not None
        assert asked.quantity == quantity.name
        assert infer(asked.quantity, asked.operands, question.target) == latent(quantity)
        assert not right(asked.naive() or "", question.target)


def test_the_same_seed_asks_the_same_questions() -> None:
    first, second = questions(rng(7)), questions(rng(7))
    assert [next(first) for _ in range(20)] == [next(second) for _ in range(20)]


def test_text_that_is_no_lesson_and_no_question_is_read_as_neither() -> None:
    assert read_convention("Reservations are computed as stated in the contract") is None
    assert read_question("What is the capital of the next country?") is None


def test_a_convention_without_its_operands_or_with_a_zero_divisor_has_no_answer() -> None:
    convention = latent(QUANTITIES[0])
    assert convention.answer({}) is None
    assert convention.answer({QUANTITIES[0].first: 1.0, QUANTITIES[0].second: 0.0}) is None
