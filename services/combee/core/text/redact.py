"""Redaction: secrets in data are replaced by ``***``."""

import re

HIDDEN = "***"
BEGIN = r"(?:(?<![A-Za-z0-9])|(?<=\\[nrt])|(?<=%[0-9A-Fa-f]{2}))"
"""Where a key may begin: outside a word, or after an escaped line end or tab, or a percent-encoded byte."""
# The pattern starts at the beginning of a word, so that a word with many eyJ is read once.
JWT = r"(?<![A-Za-z0-9_-])(?>[A-Za-z0-9_-]*?eyJ)[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]+"
"""A JSON web token."""
SHAPES = (
    r"sk-[A-Za-z0-9_-]{8,}",
    r"(?:gh[pousr]|github_pat)_[A-Za-z0-9_]{16,}",
    r"glpat-[A-Za-z0-9_-]{16,}",
    r"xox[abeoprs]-[A-Za-z0-9-]{8,}",
    r"hf_[A-Za-z0-9]{16,}",
    r"gsk_[A-Za-z0-9]{16,}",
    r"AIza[A-Za-z0-9_-]{30,}",
    r"(?:AKIA|ASIA)[A-Z0-9]{12,}",
    r"(?:[rs]k_(?:live|test)|whsec|npm)_[A-Za-z0-9_]{16,}",
    r"(?:xapp|pypi|GOCSPX)-[A-Za-z0-9_-]{16,}",
    r"(?:SG|hvs|ya29)\.[A-Za-z0-9_.-]{20,}",
)
"""Keys with known prefixes."""

KEY = re.compile(rf"{JWT}|{BEGIN}(?:{'|'.join(SHAPES)})")
# JSON in a text of JSON has backslashes before its quotation marks.
QUOTE = r"\\{0,8}[\"']?"
VALUE = r"(?!\*\*\*)(?:[^\s\"',;}&\\]|\\(?!\\{0,7}[\"']))"
BEARER = re.compile(
    rf"(?i)(bearer\s+|authorization{QUOTE}\s*[:=]\s*{QUOTE}(?:basic|token|apikey)\s+)[A-Za-z0-9._~+/=-]{{8,}}"
)
NAMED = re.compile(
    r"(?i)((?:api[_-]?key|access[_-]?key|secret(?:[_-]?key)?|(?:auth|access|refresh)[_-]?token|password|passwd)"
    rf"{QUOTE}\s*[:=]\s*{QUOTE}){VALUE}{{6,}}"
)
VARIABLE = re.compile(
    rf"(\b[A-Z][A-Z0-9_]{{0,60}}_(?:KEY|TOKEN){QUOTE}\s*[:=]\s*{QUOTE})(?=\S{{0,80}}[0-9]){VALUE}{{16,}}"
)
"""A variable of the environment that is called a key or a token, with a value of some length that has a digit."""
# The head of an encrypted key has single hyphens. Of a key that was cut, its lines and their rest are hidden.
PRIVATE_KEY = re.compile(
    r"-----BEGIN ([A-Z ]{0,30}PRIVATE KEY(?: BLOCK)?)-----(?:(?:[^-]|-(?!----)){0,20000}-----END \1-----"
    r"|(?:(?:\s|\\{1,8}[nrt])*[A-Za-z0-9+/]{40,}={0,2})+(?:(?:\s|\\{1,8}[nrt])*[A-Za-z0-9+/=]+)?)"
)
SECRET_NAME = re.compile(
    r"(?i:(?:^|[_-])(?:api_?key|apikey|token|secret|password|passwd|authorization|(?:access|secret|private)_?key)$)"
    r"|[a-z](?:ApiKey|Token|Secret|Password|AccessKey|SecretKey|PrivateKey)$"
)
# A password may contain slashes unless the part before the first one ends it, or is a port. It ends before the next
# address, so that a text of addresses is read once.
AUTHORITY = re.compile(
    r"(:\\?/\\?/[^\s/:@\"<>\[]*:)"
    r"(?:[^\s/\"<>]+|(?![0-9]{1,5}\\?/)(?:[^\s:\"<>]|:(?!\\?/\\?/))+)@"
)


SHORTEST = len("://:x@")
"""Length of the shortest match of any pattern: a body may have a million shorter texts."""
BEGINNINGS = (
    *("sk-", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "glpat-", "xox", "hf_", "gsk_"),
    *("aiza", "akia", "asia", "eyj", "k_live_", "k_test_", "whsec_", "npm_", "xapp-", "pypi-", "gocspx-"),
    *("sg.", "hvs.", "ya29."),
)
SECRETS: tuple[tuple[re.Pattern[str], str, tuple[str, ...]], ...] = (
    (PRIVATE_KEY, HIDDEN, ("private key",)),
    (KEY, HIDDEN, BEGINNINGS),
    (BEARER, rf"\1{HIDDEN}", ("bearer", "authorization")),
    (NAMED, rf"\1{HIDDEN}", ("key", "secret", "token", "passw")),
    (VARIABLE, rf"\1{HIDDEN}", ("_key", "_token")),
    (AUTHORITY, rf"\1{HIDDEN}@", ("://", ":\\/\\/")),
)
"""Per kind of secret: its pattern, its replacement, and lower-case strings one of which every match contains."""


def redacted(text: str) -> str:
    """Return the text with all probable API keys, tokens and passwords hidden."""
    if len(text) < SHORTEST:
        return text
    small = text.lower()
    for pattern, instead, hints in SECRETS:
        if any(hint in small for hint in hints):
            text = pattern.sub(instead, text)
    return text


def redacted_deep(value: object) -> object:
    """Return JSON data with every text in it redacted."""
    match value:
        case str():
            return redacted(value)
        case dict():
            return {redacted(str(name)): _named(str(name), part) for name, part in value.items()}
        case list() | tuple():
            return [redacted_deep(part) for part in value]
    return value


def _named(name: str, value: object) -> object:
    is_secret = isinstance(value, str) and value and SECRET_NAME.search(name)
    return HIDDEN if is_secret else redacted_deep(value)
