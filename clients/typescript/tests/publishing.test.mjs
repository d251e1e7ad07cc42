import assert from "node:assert/strict";
import { test } from "node:test";
import { Combee, Redactor } from "@combee/client";
import { accepted, gateway, PLAYBOOK } from "./support.mjs";

const lesson = (n) => ({ reflection_id: `r-${n}`, playbook: PLAYBOOK, key_insight: `Lesson ${n}.` });
const quiet = { log: () => undefined };

test("messages go out in batches, in order, by kind", async (t) => {
  const { url, asked } = await gateway(t, accepted);
  const combee = new Combee(url, { apiKey: "secret-key" });
  for (let n = 0; n < 250; n += 1) combee.publish(lesson(n));
  combee.outcome({ run_id: "run-1", playbook: `${PLAYBOOK}@exp`, success: true, score: 0.5 });
  const counts = await combee.close();
  assert.deepEqual([counts.published, counts.delivered, counts.waiting, counts.dropped], [251, 251, 0, 0]);
  assert.deepEqual(asked.map(({ url, body }) => [url, body.length]), [
    ["/v1/reflections", 100],
    ["/v1/reflections", 100],
    ["/v1/reflections", 50],
    ["/v1/outcomes", 1],
  ]);
  assert.deepEqual(asked.flatMap(({ body }) => body.map((one) => one.reflection_id)).slice(0, 250), [...Array(250).keys()].map((n) => `r-${n}`));
  assert.equal(asked[0].headers.authorization, "Bearer secret-key");
  assert.deepEqual(asked[3].body[0].score, { score: 0.5 });
  assert.equal(asked[3].body[0].playbook, PLAYBOOK); // a branch learns from what its playbook is sent
});

test("what the gateway cannot take for now is kept and sent again", async (t) => {
  const { url, asked } = await gateway(t, (request, all) =>
    all.length < 3 ? { status: 503, json: { detail: "Kafka is away" } } : accepted(request));
  const warnings = [];
  const combee = new Combee(url, { log: (line) => warnings.push(line) });
  combee.publish(lesson(1));
  const counts = await combee.flush(5_000);
  assert.deepEqual([counts.delivered, counts.waiting, asked.length], [1, 0, 3]);
  assert.equal(warnings.length, 1);
});

for (const [what, said] of [
  ["a page", { status: 200, json: { page: "log in" } }],
  ["a page with a receipt's status", { status: 202, json: { page: "log in" } }],
  ["a redirect", { status: 307, headers: { Location: "/v1/elsewhere" } }],
]) {
  test(`${what} of a proxy is no receipt: messages are kept`, async (t) => {
    const { url, asked } = await gateway(t, (request, all) => (all.length === 1 ? said : accepted(request)));
    const combee = new Combee(url, quiet);
    combee.publish(lesson(1));
    const counts = await combee.flush(5_000);
    assert.deepEqual([counts.delivered, counts.waiting], [1, 0]);
    assert.deepEqual(asked.map((one) => one.url), ["/v1/reflections", "/v1/reflections"]);
  });
}

test("Retry-After is honoured", async (t) => {
  const times = [];
  const { url } = await gateway(t, (request, all) => {
    times.push(performance.now());
    return all.length === 1 ? { status: 429, json: {}, headers: { "Retry-After": "1" } } : accepted(request);
  });
  const combee = new Combee(url, quiet);
  combee.publish(lesson(1));
  await combee.flush(5_000);
  assert.ok(times[1] - times[0] >= 950, `${times[1] - times[0]} ms`);
});

test("of a refused batch only the refused message is dropped", async (t) => {
  const { url } = await gateway(t, (request) =>
    request.body.some((one) => one.reflection_id === "r-1") ? { status: 422, json: { detail: "no lesson" } } : accepted(request));
  const combee = new Combee(url, quiet);
  for (let n = 0; n < 3; n += 1) combee.publish(lesson(n));
  const counts = await combee.flush();
  assert.deepEqual([counts.delivered, counts.dropped, counts.waiting], [2, 1, 0]);
});

test("what a receipt refuses is counted as dropped", async (t) => {
  const { url } = await gateway(t, () => ({
    status: 207, json: { accepted: 1, repeated: 1, refused: 1, items: [{ index: 2, status: "refused", problem: { title: "No", status: 409 } }] },
  }));
  const combee = new Combee(url, quiet);
  for (let n = 0; n < 3; n += 1) combee.publish(lesson(n));
  const counts = await combee.flush();
  assert.deepEqual([counts.delivered, counts.dropped], [2, 1]);
});

test("a full buffer drops and counts; nothing throws, whatever is given", async () => {
  const warnings = [];
  const combee = new Combee("http://127.0.0.1:9", { maxMessages: 3, log: (line) => warnings.push(line) });
  for (let n = 0; n < 10; n += 1) combee.publish(lesson(n));
  combee.publish(undefined);
  combee.trace(null);
  combee.outcome({ playbook: 7n });
  const cyclic = { playbook: PLAYBOOK };
  cyclic.metadata = { cyclic };
  combee.trace(cyclic);
  const started = performance.now();
  const counts = await combee.close(100);
  assert.ok(performance.now() - started < 2_000);
  assert.deepEqual([counts.published, counts.waiting, counts.dropped], [3, 3, 11]);
  assert.equal(warnings.filter((line) => line.includes("full")).length, 1);
  combee.publish(lesson(99)); // closed
  assert.equal(combee.counts.dropped, 12);
});

test("a client whose gateway is away lets its process end", async () => {
  const { execFileSync } = await import("node:child_process");
  const program = `import { Combee, Redactor } from "@combee/client";
    const combee = new Combee("http://127.0.0.1:9", { log: () => undefined });
    combee.publish({ playbook: "a", key_insight: "b" });
    console.log((await combee.playbook("a", { fallback: "none" })).render());`;
  const said = execFileSync(process.execPath, ["--input-type=module", "-e", program], { timeout: 20_000, encoding: "utf8" });
  assert.equal(said, "none\n");
});

test("personal data and secrets are taken out before sending", async (t) => {
  const { url, asked } = await gateway(t, accepted);
  const combee = new Combee(url);
  combee.trace({
    trace_id: "mail@example.org",
    playbook: PLAYBOOK,
    task: "Write to ann@example.org, call +49 89 1234567 or 212-555-0123.",
    trajectory: "password=hunter2222 Bearer abcdefgh12345678 sk-abcdefgh12345678",
    answer: "Card 4111 1111 1111 1111, not 4111 1111 1111 1112. DE89 3704 0044 0532 0130 00",
    metadata: { note: "ann@example.org" },
  });
  const counts = await combee.flush();
  const [trace] = asked[0].body;
  assert.equal(trace.task, "Write to [email], call [phone] or [phone].");
  assert.equal(trace.trajectory, "password=*** Bearer *** ***");
  assert.equal(trace.answer, "Card [card], not 4111 1111 1111 1112. [iban]");
  assert.deepEqual(trace.metadata, { note: "[email]" });
  assert.equal(trace.trace_id, "mail@example.org");
  assert.deepEqual(counts.redacted, { secret: 3, email: 2, phone: 2, card: 1, iban: 1 });
});

test("a word that begins a token again and again costs no more than another one", () => {
  const shortest = (text) =>
    Math.min(
      ...[1, 2, 3, 4, 5].map(() => {
        const began = performance.now();
        new Redactor().redact(text);
        return performance.now() - began;
      }),
    );
  assert.ok(shortest("eyJ-".repeat(50_000)) < 20 * shortest("abc-".repeat(50_000)) + 50);
  assert.equal(new Redactor().redact("a eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.abcDEF123 b"), "a *** b");
  assert.equal(new Redactor().redact("x_eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.abcDEF123 b"), "*** b");
  for (const [told, left] of [
    [String.raw`{"arguments": "{\"password\": \"hunter22!\", \"x\": 1}"}`, String.raw`{"arguments": "{\"password\": \"***\", \"x\": 1}"}`],
    ["Authorization: Token zzzzzzzzzzzz", "Authorization: Token ***"],
    ["COMBEE_GATEWAY_KEY=5f3c0a1b2c3d4e5f5f3c0a1b next", "COMBEE_GATEWAY_KEY=*** next"],
    ["PARTITION_KEY=customer_number of the order 7", "PARTITION_KEY=customer_number of the order 7"],
    ["npm_0123456789abcdefABCDEF SG.0123456789abcdef.ABCDEF0123", "*** ***"],
  ]) assert.equal(new Redactor().redact(told), left);
  assert.equal(new Redactor().redact("redis://:secret@host key_sk-abcdefgh1234"), "redis://:***@host key_***");
});

test("a redactor of one's own takes its place; what it fails on does not leave", async (t) => {
  const { url, asked } = await gateway(t, accepted);
  const redact = (text) => {
    if (text.includes("2")) throw new Error("no");
    return text.toUpperCase();
  };
  const combee = new Combee(url, { redact, log: () => undefined });
  combee.publish(lesson(1));
  combee.publish(lesson(2));
  const counts = await combee.flush();
  assert.deepEqual(asked[0].body.map((one) => one.key_insight), ["LESSON 1."]);
  assert.deepEqual([counts.delivered, counts.dropped], [1, 1]);
});
