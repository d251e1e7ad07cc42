"""Forms of text: ``comparable`` for comparing, ``clean`` for storing and showing.

The log keeps the bytes that agents sent. Texts from models, from people and imports, and in prompts go through
``clean``; searches and comparisons use ``comparable``. Python's ``unicodedata`` lacks the property of undisplayed
code points (Default_Ignorable_Code_Point); agents load this module with the SDK, so its few ranges are listed here to
avoid another compiled library.
"""

import re
import unicodedata
from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import pairwise

SHORT = 300
"""Maximum characters of a short text: most entries are shorter, reflections are longer."""
IGNORABLE = (
    r"\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164"
    r"\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufff8\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
"""Unicode's Default_Ignorable_Code_Point, as the inside of a character class. Unicode has reserved these ranges: a
new version assigns characters within them, and adds no others."""
_IGNORABLE = re.compile(f"[{IGNORABLE}]+")
_RAISED = re.compile("[\u2070\u00b9\u00b2\u00b3\u2071\u2074-\u207f\u02b0-\u02b8\u02e0-\u02e4\u1d2c-\u1d61]+")
_SMALL = "\u00bc-\u00be\u2080-\u2089\u2150-\u215e\u2189"
"""Lowered digits and fractions, as the inside of a character class."""
_WHOLE = r"\u2460-\u249b\u24ea\u3251-\u325f\u32b1-\u32cb\u3358-\u3370\u33e0-\u33fe\U0001f100-\U0001f10a"  # ①, ⒈, ㏠
"""Signs that are whole numbers, as the inside of a character class."""
_BESIDE_A_DIGIT = re.compile(
    f"(?<=[0-9])(?=[{_SMALL}])|(?<=[{_SMALL}])(?=[0-9])"
    f"|(?<=[0-9{_SMALL}{_WHOLE}])(?=[{_WHOLE}])|(?<=[{_WHOLE}])(?=[0-9{_SMALL}])"
)
_LINE_ENDS = re.compile(r"\r\n?|[\x0b\x0c\x85\u2028\u2029]")
_UNSEEN = re.compile(rf"[\x00-\x08\x0e-\x1f\x7f-\x9f\ufff9-\ufffb{IGNORABLE}]+")
_CHAT_TOKEN = re.compile(
    r"""<(?=(?i:
          /?[|\uff5c][^\s<>|\uff5c]{1,64}[|\uff5c>]  # ChatML, Llama 3, Phi, Command R, DeepSeek; Gemma 4 opens so
        | [^\s<>|\uff5c]{1,64}[|\uff5c]>  # Gemma 4 closes so
        | /?(?:s|bos|eos|pad|unk|(?:start|end)_of_(?:turn|image|audio))>  # Llama 2, Mistral, Gemma
        | [es]op> | e(?:od|ot|om|oh|oa)>  # GLM, Code Llama, InternLM
        | (?:reserved_|unused|extra_id_|special_)[0-9]{1,4}>  # Baichuan, Gemma, T5, Nemotron
        | fim_(?:prefix|middle|suffix|pad)>  # StarCoder
        | </?SYS>>  # Llama 2
        # DeepSeek R1, Qwen 3, GLM, EXAONE; Seed and MiniMax with their names before it.
        | /?(?:[a-z]{1,16}[:_])?(?:think(?:ing)?|thought|scratch_?pad)>
        # Hermes, Qwen, GLM, Gemma, Nemotron, OLMo.
        | /?(?:[a-z]{1,16}[:_])?(?:tools|tool_?(?:call|response|result|output|use|code|declare)s?|available_tools)>
        | /?(?:functions|(?:(?:start|end)_)?function_(?:call|response|result|declaration)s?|arg_(?:key|value))>
        | (?:function|parameter)=  # Llama 3.1, Qwen 3 Coder
        | /?invoke[\s>]  # DeepSeek, MiniMax
        ))
      | \[(?=(?i:
          /?(?:INST|SYSTEM_PROMPT|AVAILABLE_TOOLS|TOOL_(?:CALLS|RESULTS|CONTENT)|MODEL_SETTINGS)\]  # Mistral
        | \|[a-z_]{1,32}\|\]  # EXAONE
        ))
      | \[(?=(?:[gs]MASK|/?THINK)\])  # GLM, Mistral
      | \](?=~!?b[\[\]]) | \[(?=e~\[)  # MiniMax
      | \u25c1(?=/?think\u25b7)  # Kimi
      | \n(?:(?<=\A\n)|[^\S\n]*\n)[^\S\n]*(?i:Human|Assistant)(?=:)  # Claude, in text completions""",
    re.VERBOSE,
)
_UNSPACED = (
    r"\u3005-\u3007\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"  # Han
    r"\u3041-\u3096\u309d-\u309f\u30a1-\u30fa\u30fc-\u30ff\u31f0-\u31ff"  # Japanese
    r"\u0e01-\u0e3a\u0e40-\u0e4e\u0e81-\u0ece\u1000-\u103f\u1050-\u109f\u1780-\u17d3"  # Thai, Lao, Burmese, Khmer
)
"""Letters of scripts without spaces between words, as the inside of a character class."""
_UNSPACED_LETTER = re.compile(f"[{_UNSPACED}]")
_WORD = re.compile(rf"[{_UNSPACED}]|[^\W{_UNSPACED}]+")
_LETTERS_OF_A_WORD = 3
"""Letters that count as a word in a script without spaces: fewer in Chinese, more in Thai."""
COMBINING = "".join(
    char
    for char in map(chr, (*range(0x300, 0x1E00), *range(0x20D0, 0x2100), *range(0xA66F, 0xAC00)))
    if unicodedata.category(char).startswith("M")
)
"""Vowel signs and accents, as the inside of a character class: ``\\w`` has none, and so ends a Hindi word there."""
MAX_MARKS = 30
"""Maximum combining characters in a row, as in UAX #15's Stream-Safe Text Format: ordering more is quadratic."""
_MARKS_BY_NORMALISING = frozenset("\u0f73\u0f75\u0f81\uff9e\uff9f")
"""Characters that are combining once they are decomposed."""
ZWNJ, ZWJ = "\u200c", "\u200d"
_FLAG = "\U0001f3f4"
_REGIONS = tuple(
    "".join(chr(0xE0000 + ord(char)) for char in region) + "\U000e007f"
    for region in ("gbeng", "gbsct", "gbwls")
)
"""Tag sequences that make a black flag that of England, Scotland or Wales: no others are recommended for general
interchange (UTS #51), and tags could hide a text."""
_SELECTORS_OF_IDEOGRAPHS = range(0xE0100, 0xE01F0)
_JOINED = frozenset({"Lo", "Mn", "Mc", "So", "Sk"})
"""Categories of characters that joiners connect: letters without case and their signs, pictures and skin tones."""
_VIRAMA = 9
"""Combining class of signs that remove a letter's vowel: a joiner after one changes how the letters are drawn."""


def comparable(text: str, *, cased: bool = False) -> str:
    """Return a form equal for all spellings of a text, regardless of case, spacing and invisible characters.

    ``cased`` keeps what can change a word or number: case, and raised, lowered or fractional digits. 10² is then
    10^2, not 102.
    """
    if not text.isascii():
        text = _folded(text, cased=cased)
    elif not cased:
        text = text.lower()
    return " ".join(text.split())


def _folded(text: str, *, cased: bool) -> str:
    text = _with_few_marks(_IGNORABLE.sub("", text))
    if cased:
        text = _BESIDE_A_DIGIT.sub(" ", _RAISED.sub(r"^\g<0>", text))
    text = unicodedata.normalize("NFKC", text)
    while not cased and (again := unicodedata.normalize("NFKC", text.casefold())) != text:
        text = again
    return text


def _with_few_marks(text: str) -> str:
    """Return a text without the combining characters that follow ``MAX_MARKS`` others."""
    characters = set(text)
    if not any(map(unicodedata.combining, characters)) and _MARKS_BY_NORMALISING.isdisjoint(characters):
        return text
    kept: list[str] = []
    marks = 0
    for char in text:
        marks = marks + 1 if unicodedata.combining(char) or char in _MARKS_BY_NORMALISING else 0
        if marks <= MAX_MARKS:
            kept.append(char)
    return "".join(kept)


def words_of(text: str) -> list[str]:
    """Return the words of a text, without punctuation; in scripts without spaces each letter."""
    return _WORD.findall(text)


def count_words(words: Iterable[str]) -> int:
    """Return how many words these are, where some are letters or clauses of scripts without spaces."""
    parts = [_UNSPACED_LETTER.subn("", word) for word in words]
    letters = sum(count for _, count in parts)
    return sum(bool(rest) for rest, _ in parts) + -(-letters // _LETTERS_OF_A_WORD)


def comparable_spans(needle: str, text: str) -> Iterator[tuple[int, int]]:
    """Yield the ranges of a text that compare equal to ``needle``, with the end after the last character."""
    wanted = comparable(needle)
    starts: list[int] = []
    """Place in ``text`` of each character of the comparable text."""
    ends: list[int] = []
    folded_text = ""
    for start, end in pairwise((*_starts(text), len(text))):
        part = text[start:end]
        folded = _folded(part, cased=False)
        if part.isspace() or folded.isspace():
            folded = "" if not folded_text or folded_text.endswith(" ") else " "
        folded_text += folded
        starts += [start] * len(folded)
        ends += [end] * len(folded)
    at = folded_text.find(wanted) if wanted else -1
    while at >= 0:
        yield starts[at], ends[at + len(wanted) - 1]
        at = folded_text.find(wanted, at + len(wanted))


def _starts(text: str) -> Iterator[int]:
    """Yield where a character begins, with all combining and invisible characters after it."""
    for at, char in enumerate(text):
        follows = (
            unicodedata.category(char).startswith("M")
            or "\u1160" <= char <= "\u11ff"
            or char in "\uff9e\uff9f"
            or _IGNORABLE.match(char)
        )
        if at == 0 or not follows:
            yield at


def clean(text: str) -> str:
    """Return a text in its stored and shown form, valid in UTF-8; cleaning it again changes nothing.

    It is in NFC, its lines end with a newline, and it has no control, bidirectional, tag or other invisible
    characters; joiners and variation selectors stay where scripts and emoji need them. A space is inserted into the
    tokens of chat templates: they stay readable, and no tokenizer treats them as its own.
    """
    return _clean(text) if len(text) <= SHORT else _clean_of_long(text)


@lru_cache(16_384)
def _clean(text: str) -> str:
    while (cleaned := _cleaned(text)) != text:
        text = cleaned
    return text


@lru_cache(64)
def _clean_of_long(text: str) -> str:
    """Clean a long text, such as the playbook, which stands in all prompts of a batch."""
    return _clean.__wrapped__(text)


def writable(text: str) -> str:
    """Return a text that UTF-8 can encode: halves of surrogate pairs, which JSON may hold, are replaced."""
    return text.encode(errors="replace").decode()


def printable(text: str) -> str:
    """Return a text without control sequences of a terminal, and without characters that change its direction."""
    return "".join(
        char if char.isprintable() or char in f"\n\t{ZWNJ}{ZWJ}" else "\N{REPLACEMENT CHARACTER}"
        for char in text
    )


def clean_line(text: str, limit: int) -> str:
    """Return a text on one line, clean, of at most ``limit`` characters.

    Only its beginning is read, of twice as many characters: a model's reply may have millions.
    """
    line = " ".join(clean(" ".join(text.split())[: 2 * limit]).split())
    return line if len(line) <= limit else clean(line[:limit]).rstrip()


def _cleaned(text: str) -> str:
    if not text.isascii():
        text = unicodedata.normalize("NFC", _with_few_marks(text.encode(errors="replace").decode()))
    if not (text.isascii() and text.replace("\n", "").isprintable()):
        text = _UNSEEN.sub(_needed, _LINE_ENDS.sub("\n", text))
    return _CHAT_TOKEN.sub(r"\g<0> ", text)


def _needed(unseen: re.Match[str]) -> str:
    """Return the needed part of undisplayed characters: the tags of a flag, or a selector and a joiner."""
    text = unseen.string
    before, after = text[unseen.start() - 1 : unseen.start()], text[unseen.end() : unseen.end() + 1]
    kept = ""
    if before == _FLAG:
        kept = next(filter(unseen[0].startswith, _REGIONS), "")
    if before and not kept:
        kept = next((char for char in unseen[0] if _selects(before, char, after)), "")
        kept += next((char for char in unseen[0] if char in (ZWNJ, ZWJ) and _joins(before, after)), "")
    return kept


def _selects(before: str, selector: str, after: str) -> bool:
    """Return whether a variation selector changes how the character before it is drawn."""
    category = unicodedata.category(before)
    if selector in "\ufe0e\ufe0f":
        is_keycap = before in "0123456789#*" and after == "\u20e3"
        return is_keycap or (not before.isascii() and (category[0] in "SPN" or before == "\u2139"))
    if selector in "\ufe00\ufe01\ufe02":
        return category == "Sm" or _is_ideograph(before)
    if ord(selector) in _SELECTORS_OF_IDEOGRAPHS:
        return _is_ideograph(before)
    return selector in "\u180b\u180c\u180d\u180e\u180f" and "\u1820" <= before <= "\u18aa"


def _is_ideograph(char: str) -> bool:
    return char >= "\u3400" and unicodedata.category(char) == "Lo"


def _joins(before: str, after: str) -> bool:
    """Return whether a joiner has an effect: after a virama, or between characters that can be joined."""
    if unicodedata.combining(before) == _VIRAMA:
        return True
    is_last = not after or unicodedata.category(after) not in _JOINED
    return not is_last and unicodedata.category(before) in _JOINED
