"""Redaction of personal data and secrets before sending. What is found is counted and never shown."""

import re
from collections import Counter
from collections.abc import Callable, Iterator

from combee.core.text.redact import PRIVATE_KEY, SECRETS
from combee_schemas.marks import TextKind, rewritten
from combee_schemas.topics import Published

Redact = Callable[[str], str]
"""Returns a redacted text; it runs on the background thread."""

CHUNK = 16 * 1024
"""Characters searched at a time, because a search blocks all other threads."""

EMAIL = re.compile(r"(?<![\w.%+-])[\w.%+-]{1,64}@(?:[A-Za-z0-9-]{1,63}\.){1,8}[A-Za-z]{2,24}\b")
IBAN = re.compile(r"\b[A-Z]{2}[0-9]{2}(?: ?[A-Z0-9]){11,30}\b")
CARD = re.compile(r"(?<![\d.,])[3-6][0-9](?:[ -]?[0-9]){11,17}(?![\d]|[.,]\d)")
PHONE = re.compile(
    r"(?<![\w.,+-])(?:(?:\+|00)[1-9][0-9]{0,2}[ .-]?(?:\(0?[0-9]{1,4}\)[ .-]?)?[0-9]{1,4}(?:[ ./-]?[0-9]{2,4}){2,4}"
    r"|\([2-9][0-9]{2}\)[ .-]?[0-9]{3}[.-][0-9]{4}|[2-9][0-9]{2}-[2-9][0-9]{2}-[0-9]{4})(?![\w-]|[.,]\d)"
)
BETWEEN = re.compile(r"[\s{},;](?<![:=)A-Z0-9\s]\s)(?<!(?i:bearer)\s)(?<!(?i:basic)\s)(?=[^\s:=])")
"""A place where a text may be divided without dividing a secret or a number.

It is after white space, a brace, a comma or a semicolon, but not after white space that follows a digit, a capital
letter, ``:``, ``=``, ``)``, ``bearer`` or ``basic``, or that ``:`` or ``=`` follows."""


def is_card(digits: str) -> bool:
    """Return whether the check digit of a payment card's number is right (Luhn, ISO/IEC 7812-1)."""
    numbers = [int(digit) for digit in digits if digit.isdigit()][::-1]
    doubled = (sum(divmod(2 * number, 10)) for number in numbers[1::2])
    return (sum(numbers[::2]) + sum(doubled)) % 10 == 0


def is_iban(text: str) -> bool:
    """Return whether the check digits of a bank account's number are right (ISO 13616)."""
    plain = text.replace(" ", "")
    return int("".join(str(int(character, 36)) for character in plain[4:] + plain[:4])) % 97 == 1


def _always(_text: str) -> bool:
    return True


AT = re.compile("@")
NUMBER = re.compile(r"[0-9][0-9 ./()-]{4,}[0-9]")
PERSONAL: tuple[tuple[str, re.Pattern[str], re.Pattern[str], Callable[[str], bool]], ...] = (
    ("email", AT, EMAIL, _always),
    ("iban", NUMBER, IBAN, is_iban),
    ("card", NUMBER, CARD, is_card),
    ("phone", NUMBER, PHONE, _always),
)
"""Kind, a quick pattern without which there is no match, the pattern, a further check of the match.

A match is replaced by ``[kind]``."""


class Redactor:
    """The default redactor of e-mail addresses, phone, card and account numbers, keys, tokens and passwords.

    ``counts`` has the number of matches by kind. Numbers that only look like one of these stay, because agents learn
    from figures.
    """

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def __call__(self, text: str) -> str:
        """Return the text with each match replaced: personal data by ``[kind]``, secrets by ``***``."""
        text, count = PRIVATE_KEY.subn("***", text)
        self._count("secret", count)
        return "".join(map(self._chunk, chunks(text)))

    def _chunk(self, text: str) -> str:
        small = text.lower()
        for pattern, instead, hints in SECRETS:
            if any(hint in small for hint in hints):
                text, count = pattern.subn(instead, text)
                self._count("secret", count)
        for kind, hint, pattern, holds in PERSONAL:
            if hint.search(text) is None:
                continue
            text = pattern.sub(lambda match, k=kind, h=holds: self._instead(match[0], k, h), text)  # type: ignore[misc]
        return text

    def _instead(self, text: str, kind: str, holds: Callable[[str], bool]) -> str:
        if not holds(text):
            return text
        self._count(kind, 1)
        return f"[{kind}]"

    def _count(self, kind: str, count: int) -> None:
        if count:
            self.counts[kind] += count


def chunks(text: str, size: int = CHUNK) -> Iterator[str]:
    """Yield a text in parts of at most ``size`` characters.

    Each part ends at the last place of ``BETWEEN`` in its second half; if there is none, a secret may be divided.
    """
    start = 0
    while len(text) - start > size:
        end = start + size
        for place in BETWEEN.finditer(text, start + size // 2, end + 1):
            end = place.end()
        yield text[start:end]
        start = end
    yield text[start:]


def redacted(message: Published, redact: Redact) -> Published:
    """Return a message whose texts went through ``redact``; ids, names and tags stay."""
    return rewritten(message, {TextKind.TEXT: lambda text: redact(text) if text else text})
