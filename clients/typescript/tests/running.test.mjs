import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { chmodSync, mkdirSync, mkdtempSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { Combee } from "@combee/client";
import { accepted, gateway, PLAYBOOK } from "./support.mjs";

const NAMES = ["COMBEE_GATEWAY_URL", "COMBEE_BOOTSTRAP_SERVERS", "COMBEE_DATA_DIR", "COMBEE_TOPIC_PREFIX", "COMBEE_GATEWAY_KEY", "XDG_DATA_HOME"];

/** Set the environment of this test alone; the user's own deployments are not looked at. */
function environment(t, values) {
  const before = NAMES.map((name) => [name, process.env[name]]);
  const empty = mkdtempSync(join(tmpdir(), "combee-"));
  for (const name of NAMES) delete process.env[name];
  Object.assign(process.env, { XDG_DATA_HOME: empty, ...values });
  t.after(() => before.forEach(([name, value]) => (value === undefined ? delete process.env[name] : (process.env[name] = value))));
  return join(empty, "combee");
}

/** Write what `combee up` writes, and hold its lock as long as the test runs. */
async function up(t, folder, http, prefix = "combee") {
  mkdirSync(folder, { recursive: true });
  const lock = join(folder, `stack-${prefix}.lock`);
  const holder = spawn("flock", ["--exclusive", lock, "sh", "-c", "echo held; exec sleep 60"], { stdio: ["ignore", "pipe", "inherit"] });
  t.after(() => new Promise((resolve) => holder.once("exit", resolve).kill("SIGKILL")));
  await new Promise((resolve) => holder.stdout.once("data", resolve));
  const file = join(folder, `stack-${prefix}.json`);
  writeFileSync(file, JSON.stringify({ pid: holder.pid, command: "combee up", bootstrap_servers: "127.0.0.1:9092", http }), { mode: 0o600 });
  return file;
}

test("without an address the deployment that runs here is found, and named", async (t) => {
  const { url, asked } = await gateway(t, accepted);
  await up(t, environment(t, { COMBEE_GATEWAY_KEY: "secret-key" }), url);
  const said = [];
  const combee = new Combee(undefined, { log: (message) => said.push(message) });
  combee.publish({ playbook: PLAYBOOK, key_insight: "Found." });
  assert.equal((await combee.close()).delivered, 1);
  assert.match(said[0], new RegExp(`no address was given: using combee up .*${url}`));
  assert.equal(asked[0].headers.authorization, "Bearer secret-key");
});

test("the environment's address goes first, and Kafka's is refused", (t) => {
  const said = [];
  environment(t, { COMBEE_GATEWAY_URL: "http://127.0.0.1:1" });
  assert.ok(new Combee(undefined, { log: (message) => said.push(message) }));
  delete process.env.COMBEE_GATEWAY_URL;
  process.env.COMBEE_BOOTSTRAP_SERVERS = "127.0.0.1:9092";
  assert.throws(() => new Combee(), /speaks HTTP/);
  assert.deepEqual(said, []);
});

test("of two deployments none is chosen, and COMBEE_DATA_DIR or a topic prefix names one", async (t) => {
  const folder = environment(t, {});
  const other = mkdtempSync(join(tmpdir(), "combee-"));
  await up(t, folder, "http://127.0.0.1:1");
  await up(t, folder, "http://127.0.0.1:2", "second");
  await up(t, other, "http://127.0.0.1:3");
  assert.throws(() => new Combee(), /2 deployments run on this machine: .*127\.0\.0\.1:1.*127\.0\.0\.1:2.*COMBEE_DATA_DIR/);
  for (const [name, value, address] of [["COMBEE_TOPIC_PREFIX", "second", 2], ["COMBEE_DATA_DIR", other, 3]]) {
    const said = [];
    process.env[name] = value;
    assert.ok(new Combee(undefined, { log: (message) => said.push(message) }));
    assert.match(said[0], new RegExp(`127\\.0\\.0\\.1:${address}`));
    delete process.env[name];
  }
});

test("a deployment that has ended, starts, or that others can write, is not believed", async (t) => {
  const folder = environment(t, {});
  assert.throws(() => new Combee(), /no 'combee up' runs/);
  const file = await up(t, folder, "http://127.0.0.1:1");
  chmodSync(file, 0o666);
  assert.throws(() => new Combee(), /no 'combee up' runs/);
  chmodSync(file, 0o600);
  writeFileSync(file, JSON.stringify({ pid: 1, command: "combee up" }));
  assert.throws(() => new Combee(), /is not up yet/);
  writeFileSync(join(folder, "stack-old.json"), JSON.stringify({ pid: 1, command: "combee up", http: "http://127.0.0.1:9" }), { mode: 0o600 });
  writeFileSync(join(folder, "stack-old.lock"), "");
  assert.throws(() => new Combee(), /is not up yet/);
});
