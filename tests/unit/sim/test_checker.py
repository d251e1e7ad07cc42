"""The stand-in as checker: it says which statement is a lesson, with a quote that the product finds."""

from collections.abc import Sequence
from itertools import product
from typing import Any

from combee.core.methods import checking
from combee.core.methods.checking import Checked, Rewrite
from combee_sim.family.blurring import blurred
from combee_sim.family.falsehoods import opposite
from combee_sim.family.family import lessons
from combee_sim.family.lessons import key
from combee_sim.family.wordings import all_wordings
from combee_sim.inprocess import as_request
from combee_sim.modes import NO_MODES, Modes
from combee_sim.roles.reading import read
from combee_sim.roles.respond import respond
from support.rows import each_row
from support.worded import FORMULA, TAG

LESSONS = lessons()[:24]
DESK = "Never promise a refund within 14 days unless the parcel was opened."


def request(
    taught: Sequence[str], statements: Sequence[str] = (), rewrites: Sequence[Rewrite] = ()
) -> dict[str, Any]:
    return as_request(checking.prompt(taught, statements, rewrites))


def checked(
    taught: Sequence[str],
    statements: Sequence[str] = (),
    rewrites: Sequence[Rewrite] = (),
    *,
    modes: Modes = NO_MODES,
    seed: int = 0,
) -> Checked:
    """Return what the product reads of the stand-in's answer; all of it must be usable."""
    body = respond(request(taught, statements, rewrites), seed, modes=modes).reply
    answer = checking.read(body, taught, statements, rewrites)
    assert len(answer.covered) == len(body["covered"]), body
    assert len(answer.lost) == len(body["lost"]), body
    return answer


def test_a_check_call_is_known_by_its_schema_and_by_its_instructions() -> None:
    asked = request(LESSONS[:3], LESSONS[1:2], [Rewrite(before=DESK, after=blurred(DESK))])
    assert read(asked).role == "checker"
    answer = respond(asked, 0).reply
    assert [one["lesson"] for one in answer["covered"]] == [2]
    del asked["response_format"]
    assert respond(asked, 0).reply == answer


@each_row("lesson", [LESSONS[0], FORMULA, TAG, "For faulty items the shop pays the label.", "Wait."])
def test_a_lesson_is_said_by_each_of_its_wordings(lesson: str) -> None:
    wordings = all_wordings(lesson)
    for said, stated in product(wordings, wordings):
        assert checked([said], [DESK, stated]).covered == ((0, 1),)


@each_row("lesson", [*LESSONS[:3], FORMULA, TAG])
def test_a_lesson_is_not_said_by_its_blur_its_opposite_or_a_twin_with_other_figures(lesson: str) -> None:
    twins = [
        lesson.replace(old, new) for old, new in (("1 decimal", "3 decimals"), ("2 decimals", "1 decimal"))
    ]
    others = [text for text in (blurred(lesson), opposite(lesson), *twins) if text and text != lesson]
    stated = [wording for other in others for wording in all_wordings(other)]
    assert not checked([lesson], stated).covered


@each_row(
    ("lesson", "other"),
    [
        ("Refund opened parcels within 14 days.", "Refund opened parcels within 30 days."),
        ("Never promise a date.", "Promise a date."),
        ("Stop if a != b.", "Stop if a = b."),
        ("Round to 0.5.", "Round to 0.05."),
        (DESK, "Never promise a refund within 14 days."),
    ],
)
def test_a_foreign_lesson_is_said_by_its_own_words_alone(lesson: str, other: str) -> None:
    assert key(lesson) != key(other)
    assert checked([lesson], [other, f"  {lesson.upper().rstrip('.')} "]).covered == ((0, 1),)
    assert not checked([lesson], [other]).covered


def test_what_a_rewrite_lost_is_quoted_from_the_text_before() -> None:
    same = Rewrite(before=DESK, after=DESK.upper())
    more = Rewrite(before=DESK, after=DESK.replace("parcel", "parcel or letter"))
    shorter = Rewrite(before=DESK, after="Never promise a refund within 14 days.")
    positive = Rewrite(before="Do not promise a date.", after="Promise a date.")
    last = Rewrite(before="For members only.", after="For members.")
    lost = checked([], [], [same, more, shorter, positive, last]).lost
    assert [place for place, _ in lost] == [1, 2, 3, 4]
    assert dict(lost)[2] == "within 14 days unless the parcel"
    assert dict(lost)[4] == "members only"


def test_blurred_rewrites_lost_something_and_other_wordings_did_not() -> None:
    samples = [*LESSONS, FORMULA, TAG, DESK]
    blurs = [Rewrite(before=text, after=blurred(text)) for text in samples]
    reworded = [Rewrite(before=text, after=all_wordings(text)[-1]) for text in samples]
    lost = checked([], [], [*blurs, *reworded]).lost
    assert [place for place, _ in lost] == list(range(len(samples)))


def test_what_a_rewrite_lost_follows_from_its_meaning_in_any_wording() -> None:
    for right in (LESSONS[0], FORMULA, TAG):
        wrong = str(opposite(right))
        for before, after, loses in (
            (right, wrong, right == FORMULA),
            (wrong, right, right in (FORMULA, TAG)),
        ):
            pairs = product(all_wordings(before), all_wordings(after))
            rewrites = [Rewrite(before=one, after=other) for one, other in pairs]
            assert len(checked([], [], rewrites).lost) == loses * len(rewrites)


@each_row(("yes", "no"), [(0.3, 0.0), (0.0, 0.3), (0.3, 0.3)])
def test_a_share_of_judgements_is_wrong_with_words_of_the_text(yes: float, no: float) -> None:
    modes = Modes(false_yes=yes, false_no=no)
    stated = [*LESSONS[:12], FORMULA]
    rewrites = [
        *(Rewrite(before=text, after=blurred(text)) for text in LESSONS[:12]),
        *(Rewrite(before=text, after=all_wordings(text)[-1]) for text in LESSONS[12:]),
    ]
    wrong_yes = wrong_no = wrong_lost = wrong_kept = 0
    for seed in range(10):
        answer = checked(LESSONS, stated, rewrites, modes=modes, seed=seed)
        covered, lost = dict(answer.covered), dict(answer.lost)
        wrong_yes += sum(n in covered for n in range(12, 24))
        wrong_no += sum(n not in covered for n in range(12))
        wrong_kept += sum(n not in lost for n in range(12))
        wrong_lost += sum(n in lost for n in range(12, 24))
    for rate, counts in ((yes, (wrong_yes, wrong_kept)), (no, (wrong_no, wrong_lost))):
        assert all(20 <= wrong <= 55 if rate else not wrong for wrong in counts)
    assert checked(LESSONS, stated, modes=modes) == checked(LESSONS, stated, modes=modes)


def test_a_false_yes_names_the_nearest_statement() -> None:
    twin = FORMULA.replace("2 decimals", "3 decimals")
    answer = checked([twin], [DESK, LESSONS[0], FORMULA], modes=Modes(false_yes=1.0))
    assert answer.covered == ((0, 2),)


def test_a_checker_without_errors_is_not_changed_by_other_modes() -> None:
    modes = Modes(paraphrase=0.8, invented=2, contradictions=0.2, overload="mixed")
    assert checked(LESSONS, LESSONS[:5], modes=modes) == checked(LESSONS, LESSONS[:5])


@each_row("taught", [[], ["Wait."], ["???"]])
def test_a_check_without_statements_covers_nothing(taught: Sequence[str]) -> None:
    assert not checked(taught, [], modes=Modes(false_yes=1.0)).covered
