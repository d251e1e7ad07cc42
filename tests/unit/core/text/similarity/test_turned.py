"""What turns a lesson (a comma, who is meant, the order of steps) never counts as it; what says nothing does."""

from combee.core.text.similarity.embeddings import Thresholds
from combee.core.text.similarity.lessons import same_lesson
from combee.core.text.similarity.saying import judge
from support.rows import each_row

LOOSE = Thresholds(meaning=0.8)
NO_REFUNDS = "No refunds are paid after 30 days"


@each_row(
    ("text", "lesson"),
    [
        ("No, refunds are paid after 30 days", NO_REFUNDS),
        ("No — refunds are paid after 30 days", NO_REFUNDS),
        ("No… refunds are paid after 30 days", NO_REFUNDS),
        ("Ask first never, refund gift cards", "Ask first, never refund gift cards"),
        ("We pay the return shipping", "You pay the return shipping"),
        ("Send it to your address", "Send it to our address"),
        ("Issue the refund. Verify the account.", "Verify the account. Issue the refund."),
        ("The parcel is opened. Refund nothing.", "The parcel is opened? Refund nothing."),
        ("The parcel is opened. Refund nothing", "Is the parcel opened? Refund nothing"),
        ("The customer should insist, pay the full price", "Should the customer insist, pay the full price"),
        ("The parcel was lost, pay it back", "Were the parcel lost, pay it back"),
        ("Block users who reported three times", "Block users who are reported three times"),
        ("Refund what the customer charged", "Refund what the customer was charged"),
        ("Call the interface over HTTP", "Call the interface over HTTPS"),
        ("Bind to ldap on port 636", "Bind to ldaps on port 636"),
        ("Tell the customer to cancel", "To cancel, tell the customer"),
        ("Only refund gift cards if a lead agrees", "If a lead agrees, only refund gift cards"),
        ("Check if the parcel was opened", "If the parcel was opened, check"),
        ("Block users with admin rights", "With admin rights, block users"),
        ("Refund orders paid with a voucher", "With a voucher, refund orders paid"),
        ("Cancel meetings after 5 pm", "After 5 pm, cancel meetings"),
        ("Block the user who reported it", "Block the user who's reported it"),
        ("Refund when the customer charged twice", "Refund when the customer's charged twice"),
        ("Few refunds need a receipt", "A few refunds need a receipt"),
        ("Give little credit", "Give a little credit"),
    ],
)
def test_what_turns_a_lesson_is_not_that_lesson(text: str, lesson: str) -> None:
    for one, other in ((text, lesson), (lesson, text)):
        assert not same_lesson(one, other)
        assert judge(one, other).verdict != "yes"
        assert judge(one, other, cosine=1.0, thresholds=LOOSE).verdict != "yes"


@each_row(
    ("text", "lesson"),
    [
        ("Refund, escalate and close", "Refund escalate and close"),
        ("Never refund, because they ask", "Never refund because they ask"),
        ("Refunds must be approved by a lead", "Refunds are approved by a lead"),
        ("Please refund", "Refund"),
        ("Get it with pip install request", "Get it with pip install requests"),
        ('Clean up with rm -rf "$DIR"/*', 'Clean up with rm -rf "$DIR" /*'),
    ],
)
def test_what_differs_in_a_comma_an_article_or_a_plural_is_another_lesson(text: str, lesson: str) -> None:
    assert judge(text, lesson).verdict != "yes"
