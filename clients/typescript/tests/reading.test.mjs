import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { test } from "node:test";
import { promisify } from "node:util";
import { Combee } from "@combee/client";
import { gateway, signal } from "./support.mjs";

const entry = (id, content) => ({ id, section: "RULES", content });
const playbook = (version, ...entries) => ({ name: "shop/tone", version, created_at_ms: Date.now(), sections: ["RULES"], entries });

/** A gateway with one playbook; `publish` moves it on and tells the streams. */
async function shop(t) {
  const streams = new Set();
  let now = playbook(1, entry("a", "Be kind."));
  const made = await gateway(t, ({ url, headers }) => {
    if (url.includes("/events")) {
      return (response) => {
        response.writeHead(200, { "Content-Type": "text/event-stream" });
        const resumes = headers["last-event-id"] !== undefined;
        response.write(resumes ? ": ping\n\n" : `id: ${now.version}@0\nevent: version\ndata: {}\n\n: ping\n\n`);
        streams.add(response);
      };
    }
    const etag = `"${now.version}"`;
    const more = { ETag: etag, ...(url.includes("caller=ann") ? { "Combee-Canary": "2-0123456789abcdef" } : {}) };
    return headers["if-none-match"] === etag ? { status: 304, headers: more } : { json: now, headers: more };
  });
  const publish = async (next, isTold = true) => {
    now = next;
    while (isTold && !streams.size) await new Promise(setImmediate);
    if (isTold) for (const stream of streams) stream.write(`id: ${now.version}@1\r\nevent: version\r\ndata: {}\r\n\r\n`);
  };
  return { ...made, publish };
}

test("a playbook is read from memory; a new version is pushed, and only a change is transferred", async (t) => {
  const { url, asked, publish } = await shop(t);
  const combee = new Combee(url);
  t.after(() => combee.close());
  const first = await combee.playbook("shop/tone");
  assert.equal(first.render(), "## RULES\n[a] Be kind.\n");
  assert.deepEqual(first.shown(), { version: 1, entry_ids: ["a"] });
  const { told, come } = signal();
  combee.onUpdate("shop/tone", (view) => view.version === 2 && told(view));
  publish(playbook(2, entry("a", "Be kind."), entry("b", "Be brief.")));
  assert.equal((await come).render(), "## RULES\n[a] Be kind.\n[b] Be brief.\n");
  const reads = asked.filter(({ url }) => !url.includes("/events"));
  assert.ok(reads.slice(1).every(({ headers }) => headers["if-none-match"]));
  const before = asked.length;
  assert.equal((await combee.playbook("shop/tone")).version, 2);
  assert.equal(asked.length, before);
});

test("an open stream lets its process end", async (t) => {
  const { url, asked } = await shop(t);
  const program = `import { Combee } from "@combee/client";
    const combee = new Combee("${url}");
    await new Promise((resolve) => combee.onUpdate("shop/tone", resolve));
    setTimeout(() => console.log("end"), 300);`;
  const ended = await promisify(execFile)(process.execPath, ["--input-type=module", "-e", program], { timeout: 20_000 });
  assert.equal(ended.stdout, "end\n");
  assert.ok(asked.some(({ url }) => url.includes("/events")));
});

test("after a cut the stream is opened again where it ended, and what was missed is read", async (t) => {
  const { url, asked, publish, cut } = await shop(t);
  const combee = new Combee(url, { log: () => undefined });
  t.after(() => combee.close());
  const versions = { 1: signal(), 2: signal(), 3: signal() };
  combee.onUpdate("shop/tone", ({ version }) => versions[version].told());
  await versions[1].come;
  publish(playbook(2, entry("a", "Be brief.")));
  await versions[2].come;
  cut();
  publish(playbook(3, entry("a", "Be exact.")), false);
  await versions[3].come;
  const [first, second] = asked.filter(({ url }) => url.includes("/events"));
  assert.deepEqual([first.headers["last-event-id"], second.headers["last-event-id"]], [undefined, "2@1"]);
});

test("who reads and which label go to the gateway; its place in a canary comes back in shown()", async (t) => {
  const { url, asked } = await shop(t);
  const combee = new Combee(url);
  t.after(() => combee.close());
  const view = await combee.playbook("shop/tone", { caller: "ann", label: "production" });
  assert.deepEqual(view.shown(), { version: 1, entry_ids: ["a"], canary: "2-0123456789abcdef" });
  assert.ok(asked.some(({ url }) => url === "/v1/playbooks/shop%2Ftone?label=production&caller=ann"));
  const pinned = await combee.playbook("shop/tone", { version: 1 });
  assert.equal(pinned.version, 1);
});

test("without a gateway there is the fallback, not waited for twice; nothing rejects", async () => {
  const combee = new Combee("http://127.0.0.1:9", { log: () => undefined });
  const view = await combee.playbook("shop/tone", { fallback: "Be kind." });
  assert.deepEqual([view.isFallback, view.version, view.ageMs, view.shown()], [true, 0, Infinity, { version: 0 }]);
  assert.match(view.prompt(), /^What earlier runs taught[^]*<playbook [0-9a-f]{8}>\nBe kind\.\n<\/playbook /);
  assert.equal((await combee.playbook(Symbol("odd"), { fallback: "x" })).render(), "x");
  assert.equal((await combee.playbook("\ud800", { fallback: "x" })).render(), "x");
  combee.onUpdate("\ud800", () => undefined)();
  await combee.close(0);
});

test("a silent gateway is waited for so long as said, once", async (t) => {
  const { url } = await gateway(t, () => () => undefined);
  const combee = new Combee(url, { log: () => undefined });
  t.after(() => combee.close(0));
  const started = performance.now();
  await combee.playbook("shop/tone", { timeoutMs: 300 });
  const first = performance.now() - started;
  await combee.playbook("shop/tone", { timeoutMs: 60_000 });
  assert.ok(first >= 250 && performance.now() - started < 10_000);
});

test("a subscriber that fails, or left, disturbs nobody", async (t) => {
  const { url, publish } = await shop(t);
  const combee = new Combee(url, { log: () => undefined });
  t.after(() => combee.close());
  await combee.playbook("shop/tone");
  const { told, come } = signal();
  combee.onUpdate("shop/tone", () => {
    throw new Error("no");
  });
  const left = [];
  combee.onUpdate("shop/tone", ({ version }) => left.push(version))();
  combee.onUpdate("shop/tone", ({ version }) => version === 2 && told());
  publish(playbook(2, entry("a", "Be brief.")));
  await come;
  assert.deepEqual(left, [1]);
});
