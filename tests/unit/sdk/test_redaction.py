"""What is taken out of texts before they leave, and what stays."""

import logging
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from combee.sdk import (
    Client,
    MemoryTransport,
    background,
    core,
)
from combee.sdk.redaction import CHUNK, Redactor, chunks, redacted
from combee_schemas.base import Source
from combee_schemas.outcome import Outcome
from combee_schemas.reflection import Reflection
from combee_schemas.trace import Trace
from support.rows import each_row
from support.sdk import DEADLINE_S, UnreliableTransport, reflection


def test_a_redactor_that_reads_a_playbook_does_not_wait_for_itself(memory: UnreliableTransport) -> None:
    def redact(text: str) -> str:
        return own.playbook("never asked for", fallback=text, timeout_s=60).render()

    own = Client(transport=lambda: memory, redact=redact)
    own.publish(reflection(1))
    assert own.close().is_complete


def test_personal_data_leaves_only_where_redaction_is_off(memory: UnreliableTransport) -> None:
    told = "write to ann@example.org with sk-abcdefgh12345678"
    with Client(transport=lambda: memory) as client:
        client.publish(reflection(1, told))
        assert client.flush().redacted == {"email": 1, "secret": 1}
    other = MemoryTransport()
    with Client(transport=lambda: other, redact=None) as client:
        client.publish(reflection(2, told))
    assert [one.key_insight for one in (*memory.reflections, *other.reflections)] == [
        "write to [email] with ***",
        told,
    ]


def test_every_text_of_a_message_is_redacted_and_ids_stay() -> None:
    told, ids = "ann@example.org", {"playbook": "p", "source": Source(name="ann@example.org")}
    reflection = Reflection(
        reflection_id="ann@example.org", key_insight=told, side_info={told: told}, task_excerpt=told, **ids
    )
    trace = Trace(
        trace_id="ann@example.org", task=told, target=told, agent=told, metadata={told: told}, **ids
    )
    outcome = Outcome(run_id="ann@example.org", caller=told, **ids)
    for message, left in (
        (reflection, {"key_insight": "x", "side_info": {told: "x"}, "task_excerpt": "x"}),
        (trace, {"task": "x", "target": "x", "agent": "x", "metadata": {told: "x"}}),
        (outcome, {"caller": "x"}),
    ):
        assert redacted(message, lambda _: "x") == message.model_copy(update=left)


def test_counts_are_logged_and_values_never(
    memory: UnreliableTransport, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, logger="combee")
    with Client(transport=lambda: memory) as client:
        client.publish(reflection(1, "ann@example.org"))
    assert "{'email': 1}" in caplog.text
    assert "ann@" not in caplog.text


def test_a_redactor_that_fails_lets_nothing_out(memory: UnreliableTransport) -> None:
    def broken(text: str) -> str:
        raise RuntimeError(text)

    with Client(transport=lambda: memory, redact=broken) as client:
        client.publish(reflection(1))
        assert client.flush().dropped == 1
    assert memory.reflections == []


def test_a_redactor_that_hangs_does_not_hold_up_the_end(
    memory: UnreliableTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(core, "GRACE_S", 0.02)
    monkeypatch.setattr(background, "STOP_S", 0.02)
    goes_on, has_closed = threading.Event(), threading.Event()

    def hang(text: str) -> str:
        goes_on.wait(DEADLINE_S)
        return text

    client = Client(transport=lambda: memory, redact=hang)
    client.publish(reflection(1))

    def close() -> None:
        assert client.close(timeout_s=0.02).waiting == 1
        has_closed.set()

    closing = threading.Thread(target=close)
    closing.start()
    try:
        assert has_closed.wait(DEADLINE_S / 2)
    finally:
        goes_on.set()
        closing.join(DEADLINE_S)


def test_a_redactor_of_ones_own_takes_its_place(memory: UnreliableTransport) -> None:
    with Client(transport=lambda: memory, redact=str.upper) as client:
        client.publish(reflection(1))
    assert [one.key_insight for one in memory.reflections] == ["LESSON 1"]


@each_row(
    ("told", "left", "kind"),
    [
        ("mail ann.b+x@mail.example.co.uk now", "mail [email] now", "email"),
        ("call +49 170 1234567 today", "call [phone] today", "phone"),
        ("call 0049 (0)30 123 456 78", "call [phone]", "phone"),
        ("call (415) 555-2671", "call [phone]", "phone"),
        ("call 415-555-2671.", "call [phone].", "phone"),
        ("card 4111 1111 1111 1111, thanks", "card [card], thanks", "card"),
        ("card 378282246310005", "card [card]", "card"),
        ("to GB29 NWBK 6016 1331 9268 19 please", "to [iban] please", "iban"),
        ("to DE89370400440532013000", "to [iban]", "iban"),
        ("key sk-proj-abcdefgh12345678", "key ***", "secret"),
        ("Authorization: Bearer abcdefghijkl", "Authorization: Bearer ***", "secret"),
        ('{"password": "hunter2hunter2"}', '{"password": "***"}', "secret"),
        ("postgres://bob:s3cret@db/x", "postgres://bob:***@db/x", "secret"),
        ("redis://:s3cret@db/x", "redis://:***@db/x", "secret"),
        ("x_eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.abcDEF123", "***", "secret"),
        ("-----BEGIN RSA PRIVATE KEY-----\nab+/=\ncd\n-----END RSA PRIVATE KEY-----", "***", "secret"),
        (
            "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n\nab\n-----END RSA PRIVATE KEY-----",
            "***",
            "secret",
        ),
        ("-----BEGIN PGP PRIVATE KEY BLOCK-----\nab\n-----END PGP PRIVATE KEY BLOCK-----", "***", "secret"),
        ("refresh_token=abcdefgh", "refresh_token=***", "secret"),
    ],
)
def test_personal_data_and_secrets_go_and_are_counted(told: str, left: str, kind: str) -> None:
    redact = Redactor()
    assert redact(told) == left
    assert redact.counts == {kind: 1}


@each_row(
    "told",
    [
        "revenue was 4,111,111,111,111.11 in 2024",
        "id 4111111111111112",
        "on 2024-01-05 at 10:30:00, order 20240105103000",
        "GB00 NWBK 6016 1331 9268 19",
        "x = 415.555.267 + 12.5 - 3e10",
        "3.14159265358979323846",
        "@decorator and a@b",
        "the API key is in the vault; the token budget is 500",
        "[calc-00003] helpful=8 harmful=0 :: keep 3 decimals",
        "0.4111111111111111",
    ],
)
def test_figures_and_words_stay(told: str) -> None:
    redact = Redactor()
    assert redact(told) == told
    assert not redact.counts


def test_a_find_across_parts_of_a_long_text_is_found() -> None:
    text = "word " * 3_270 + "ann@example.org " + "word " * 3_000
    assert "example.org" not in Redactor()(text)


@each_row(
    "secret",
    [
        "password: hunter2222",
        'Authorization: Bearer abcdefghijklmnop1234"',
        '"api_key" :\n "abcdefgh12345"',
        "4111 1111 1111 1111",
        "DE89 3704 0044 0532 0130 00",
        "(212) 555-1234",
        "sk-abcdefghijklmnop",
    ],
)
def test_no_part_of_a_long_text_ends_within_a_find(secret: str) -> None:
    for filler in ("words and more ", '{"key":"value"},'):
        words = filler * 1_200
        for before in range(CHUNK - 40, CHUNK, 3):
            text = f"{words[:before]} {secret} {words}"
            assert any(secret in part for part in chunks(text)), (filler, before)


@given(st.text(alphabet="ab \n@.", max_size=300), st.integers(1, 50))
def test_chunks_are_the_text(text: str, size: int) -> None:
    assert "".join(chunks(text, size)) == text
