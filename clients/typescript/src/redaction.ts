/** Redaction of personal data and secrets before sending, as in the Python SDK; finds are counted, never shown. */

export type Redact = ((text: string) => string) | Redactor;
export type Kind = "traces" | "reflections" | "outcomes";

const HIDDEN = "***";
/** Characters searched at a time, because a search blocks everything else. */
const CHUNK = 16 * 1024;

/** Where a key may begin: not within a word, but after an escaped line end or tab, and after a percent-encoded byte. */
const BEGIN = String.raw`(?:(?<![A-Za-z0-9])|(?<=\\[nrt])|(?<=%[0-9A-Fa-f]{2}))`;
// From where its word begins, in an atomic group: a word with many repeats of eyJ is read only once.
const TOKEN = String.raw`(?<![A-Za-z0-9_-])(?=([A-Za-z0-9_-]*?eyJ))\1[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]+`;
const KEYS = [
  String.raw`sk-[A-Za-z0-9_-]{8,}`,
  String.raw`(?:gh[pousr]|github_pat)_[A-Za-z0-9_]{16,}`,
  String.raw`glpat-[A-Za-z0-9_-]{16,}`,
  String.raw`xox[abeoprs]-[A-Za-z0-9-]{8,}`,
  String.raw`hf_[A-Za-z0-9]{16,}`,
  String.raw`gsk_[A-Za-z0-9]{16,}`,
  String.raw`AIza[A-Za-z0-9_-]{30,}`,
  String.raw`(?:AKIA|ASIA)[A-Z0-9]{12,}`,
  String.raw`(?:[rs]k_(?:live|test)|whsec|npm)_[A-Za-z0-9_]{16,}`,
  String.raw`(?:xapp|pypi|GOCSPX)-[A-Za-z0-9_-]{16,}`,
  String.raw`(?:SG|hvs|ya29)\.[A-Za-z0-9_.-]{20,}`,
];
const KEY = new RegExp(`${TOKEN}|${BEGIN}(?:${KEYS.join("|")})`, "g");
// JSON in a text of JSON has backslashes before its quotation marks.
const QUOTE = String.raw`\\{0,8}["']?`;
const IS = String.raw`${QUOTE}\s*[:=]\s*${QUOTE}`;
const VALUE = String.raw`(?!\*\*\*)(?:[^\s"',;}&\\]|\\(?!\\{0,7}["']))`;
const NAMES = "api[_-]?key|access[_-]?key|secret(?:[_-]?key)?|(?:auth|access|refresh)[_-]?token|password|passwd";
const SECRETS: readonly [RegExp, string][] = [
  [KEY, HIDDEN],
  [
    new RegExp(String.raw`(bearer\s+|authorization${IS}(?:basic|token|apikey)\s+)[A-Za-z0-9._~+/=-]{8,}`, "gi"),
    `$1${HIDDEN}`,
  ],
  [new RegExp(`((?:${NAMES})${IS})${VALUE}{6,}`, "gi"), `$1${HIDDEN}`],
  [
    new RegExp(String.raw`(\b[A-Z][A-Z0-9_]{0,60}_(?:KEY|TOKEN)${IS})(?=\S{0,80}[0-9])${VALUE}{16,}`, "g"),
    `$1${HIDDEN}`,
  ],
  [
    /(:\\?\/\\?\/[^\s/:@"<>[]*:)(?:[^\s/"<>]+|(?![0-9]{1,5}\\?\/)(?:[^\s:"<>]|:(?!\\?\/\\?\/))+)@/g,
    `$1${HIDDEN}@`,
  ],
];
// The head of an encrypted key has single hyphens.
const PRIVATE_KEY = /-----BEGIN ([A-Z ]{0,30}PRIVATE KEY(?: BLOCK)?)-----(?:[^-]|-(?!----)){0,20000}-----END \1-----/g;
/** Where a text may be divided: at white space that no secret and no number contains, or after these signs. */
const BETWEEN = /[\s{},;](?<![:=)A-Z0-9\s]\s)(?<![Bb][Ee][Aa][Rr][Ee][Rr]\s)(?<![Bb][Aa][Ss][Ii][Cc]\s)(?=[^\s:=])/g;
const PERSONAL: readonly [string, RegExp, (text: string) => boolean][] = [
  ["email", /(?<![\w.%+-])[\w.%+-]{1,64}@(?:[A-Za-z0-9-]{1,63}\.){1,8}[A-Za-z]{2,24}\b/g, () => true],
  ["iban", /\b[A-Z]{2}[0-9]{2}(?: ?[A-Z0-9]){11,30}\b/g, isIban],
  ["card", /(?<![\d.,])[3-6][0-9](?:[ -]?[0-9]){11,17}(?![\d]|[.,]\d)/g, isCard],
  [
    "phone",
    /(?<![\w.,+-])(?:(?:\+|00)[1-9][0-9]{0,2}[ .-]?(?:\(0?[0-9]{1,4}\)[ .-]?)?[0-9]{1,4}(?:[ ./-]?[0-9]{2,4}){2,4}|\([2-9][0-9]{2}\)[ .-]?[0-9]{3}[.-][0-9]{4}|[2-9][0-9]{2}-[2-9][0-9]{2}-[0-9]{4})(?![\w-]|[.,]\d)/g,
    () => true,
  ],
];

/** The default redactor of e-mail addresses, phone, card and account numbers, keys, tokens and passwords. */
export class Redactor {
  /** Number of finds by kind. */
  readonly counts: Record<string, number> = {};

  redact(text: string): string {
    return chunks(this.replaced(text, PRIVATE_KEY, HIDDEN))
      .map((part) => this.chunk(part))
      .join("");
  }

  private chunk(text: string): string {
    for (const [pattern, instead] of SECRETS) text = this.replaced(text, pattern, instead);
    for (const [kind, pattern, holds] of PERSONAL) {
      text = text.replace(pattern, (found) => {
        if (!holds(found)) return found;
        this.count(kind, 1);
        return `[${kind}]`;
      });
    }
    return text;
  }

  private replaced(text: string, pattern: RegExp, instead: string): string {
    const count = text.match(pattern)?.length ?? 0;
    if (!count) return text;
    this.count("secret", count);
    return text.replace(pattern, instead);
  }

  private count(kind: string, count: number): void {
    this.counts[kind] = (this.counts[kind] ?? 0) + count;
  }
}

/** Whether the check digit of a payment card's number is right (Luhn, ISO/IEC 7812-1). */
function isCard(text: string): boolean {
  const digits = [...text.replace(/\D/g, "")].map(Number).reverse();
  const sum = digits.reduce((total, digit, at) => total + (at % 2 ? 2 * digit - (digit > 4 ? 9 : 0) : digit), 0);
  return sum % 10 === 0;
}

/** Whether the check digits of a bank account's number are right (ISO 13616). */
function isIban(text: string): boolean {
  const plain = text.replaceAll(" ", "");
  const digits = [...plain.slice(4), ...plain.slice(0, 4)].map((character) => parseInt(character, 36)).join("");
  return [...digits].reduce((rest, digit) => (10 * rest + Number(digit)) % 97, 0) === 1;
}

/** Return a text in parts; no secret and no number is divided, unless nothing else can be for half a part. */
function chunks(text: string): string[] {
  const parts: string[] = [];
  let start = 0;
  while (text.length - start > CHUNK) {
    const places = [...text.slice(start, start + CHUNK + 1).matchAll(BETWEEN)].map((place) => place.index + 1);
    const last = places.at(-1) ?? 0;
    const end = start + (last > CHUNK / 2 ? last : CHUNK);
    parts.push(text.slice(start, end));
    start = end;
  }
  return [...parts, text.slice(start)];
}

const TEXTS: Record<Kind, readonly string[]> = {
  traces: ["task", "trajectory", "answer", "feedback", "target", "agent"],
  reflections: ["reasoning", "error_identification", "root_cause_analysis", "correct_approach", "key_insight"],
  outcomes: ["caller"],
};
const MAPS: Record<Kind, string> = { traces: "metadata", reflections: "side_info", outcomes: "" };

/** Return a message whose texts went through `redact`; ids, names and tags stay. */
export function redacted(kind: Kind, message: Record<string, unknown>, redact: Redact): Record<string, unknown> {
  const clean = (value: unknown): unknown =>
    typeof value !== "string" ? value : redact instanceof Redactor ? redact.redact(value) : redact(value);
  const values = message[MAPS[kind]];
  return {
    ...message,
    ...Object.fromEntries(TEXTS[kind].filter((name) => message[name]).map((name) => [name, clean(message[name])])),
    ...(values && typeof values === "object"
      ? { [MAPS[kind]]: Object.fromEntries(Object.entries(values).map(([name, text]) => [name, clean(text)])) }
      : {}),
  };
}
