from combee.core.text.redact import redacted, redacted_deep
from support.rows import each_row

LINE = "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSj" + "AgEAAoIBAQC7"


@each_row(
    ("text", "shown"),
    [
        ("key sk-abcdefgh1234 here", "key *** here"),
        ("Authorization: Bearer abc.def-ghi_jkl", "Authorization: Bearer ***"),
        ('{"api_key": "zzzzzzzz", "x": 1}', '{"api_key": "***", "x": 1}'),
        ("OPENAI_API_KEY=zzzzzzzz next", "OPENAI_API_KEY=*** next"),
        ("Authorization: Basic dXNlcjpwYXNz", "Authorization: Basic ***"),
        ("password: hunter22!", "password: ***"),
        ("ghp_0123456789abcdefABCDEF", "***"),
        ("AKIAIOSFODNN7EXAMPLE", "***"),
        ("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.abcDEF123", "***"),
        ("token-eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.abcDEF123 next", "*** next"),
        ("sk-1234-eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.abcDEF123", "***"),
        ("(éeyJ.eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.abcDEF123)", "(éeyJ.***)"),
        ("postgres://user:secretpw@host/db", "postgres://user:***@host/db"),
        ("x_eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.abcDEF123 next", "*** next"),
        ("?q=token%3DeyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.abcDEF123", "?q=token%***"),
        ("use key_sk-abcdefgh1234 here", "use key_*** here"),
        (r'"said:\nsk-abcdefgh1234"', r'"said:\n***"'),
        ("?key=a%20sk-abcdefgh1234", "?key=a%20***"),
        (r'"said:\nBearer abcdefghij"', r'"said:\nBearer ***"'),
        ("redis://:secretpw@host/0", "redis://:***@host/0"),
        ("https://:pw@h", "https://:***@h"),
        (r'"https:\/\/u:secret@h"', r'"https:\/\/u:***@h"'),
        ("postgres://user:p@ss@host/db", "postgres://user:***@host/db"),
        ("amqp://u:pa/ss@h", "amqp://u:***@h"),
        ("amqp://u:/pa//ss:/@h/vhost", "amqp://u:***@h/vhost"),
        (r'"amqp:\/\/u:pa\/ss@h"', r'"amqp:\/\/u:***@h"'),
        ("amqp://u:pa/ss@h,amqp://v:wo/rd@i", "amqp://u:***@h,amqp://v:***@i"),
        ("http://u:secret@h/to?mail=a@b", "http://u:***@h/to?mail=a@b"),
        ("http://h:8080/to/a@b", "http://h:8080/to/a@b"),
        (r"http:\/\/h:8080\/to\/a@b", r"http:\/\/h:8080\/to\/a@b"),
        ("http://[::1]:8080/to/a@b", "http://[::1]:8080/to/a@b"),
        ('{"at":"redis://h:6379","to":"a@b"}', '{"at":"redis://h:6379","to":"a@b"}'),
        ("-----BEGIN PRIVATE KEY-----\nab+/=\ncd\n-----END PRIVATE KEY-----", "***"),
        (f"-----BEGIN PRIVATE KEY-----\n{LINE}\n{LINE}\nab [cut]", "*** [cut]"),
        (rf"-----BEGIN EC PRIVATE KEY-----\n{LINE}\nab", "***"),
        ("name -----BEGIN PRIVATE KEY----- in a scan", "name -----BEGIN PRIVATE KEY----- in a scan"),
        (
            r'{"arguments": "{\"password\": \"hunter22!\", \"x\": 1}"}',
            r'{"arguments": "{\"password\": \"***\", \"x\": 1}"}',
        ),
        (r'"\\\"api_key\\\":\\\"zzzzzzzz\\\""', r'"\\\"api_key\\\":\\\"***\\\""'),
        ("password: hunter\\22!", "password: ***"),
        ("Authorization: Token zzzzzzzzzzzz", "Authorization: Token ***"),
        ("COMBEE_GATEWAY_KEY=5f3c0a1b2c3d4e5f5f3c0a1b next", "COMBEE_GATEWAY_KEY=*** next"),
        ("PARTITION_KEY=customer_number of the order 7", "PARTITION_KEY=customer_number of the order 7"),
        ("sk_live" + "_0123456789abcdefABCDEF", "***"),
        ("npm_0123456789abcdefABCDEF", "***"),
        ("SG.0123456789abcdef.ABCDEF0123", "***"),
        ("task_live_0123456789abcdefABCDEF", "task_live_0123456789abcdefABCDEF"),
        ("task-abcdefghij and disk-abcdefghij", "task-abcdefghij and disk-abcdefghij"),
        ("the token budget is 16000 tokens", "the token budget is 16000 tokens"),
        ("use sk-learn and basic arithmetic", "use sk-learn and basic arithmetic"),
    ],
)
def test_what_looks_like_a_secret_is_hidden_and_the_rest_is_not(text: str, shown: str) -> None:
    assert redacted(text) == shown


def test_secrets_are_found_by_the_name_of_their_field_too() -> None:
    named = {
        "api_key": "plain",
        "clientSecret": "plain",
        "secret_access_key": "plain",
        "usage": {"tokens_in": 7},
    }
    hidden = dict.fromkeys(named, "***") | {"usage": {"tokens_in": 7}}
    assert redacted_deep({"metadata": [named], "note": "sk-abcdefgh1234"}) == {
        "metadata": [hidden],
        "note": "***",
    }


def test_redacting_twice_changes_nothing_more() -> None:
    once = redacted("api_key=zzzzzzzz Bearer abcdefghij")
    assert redacted(once) == once
