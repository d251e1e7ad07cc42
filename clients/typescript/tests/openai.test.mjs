// Against OpenAI's own library: here with replies of the tests' own, at the end with the stand-in model.
import assert from "node:assert/strict";
import { test } from "node:test";
import OpenAI, { AzureOpenAI } from "openai";
import { Combee, wrapOpenAI } from "@combee/client";
import { gateway, GATEWAY, MODEL } from "./support.mjs";

const view = { name: "shop/rates", version: 3, sections: ["RULES"], entries: [{ id: "a", section: "RULES", content: "In percent." }] };
const question = { role: "user", content: "What is the rate?" };
const completion = {
  id: "c", object: "chat.completion", model: "model-7", usage: { prompt_tokens: 5, completion_tokens: 2 },
  choices: [{ index: 0, finish_reason: "stop", message: { role: "assistant", content: "25.0" } }],
};
const chunk = (delta, more = {}) => ({ id: "c", object: "chat.completion.chunk", model: "model-7", choices: [{ index: 0, delta, ...more }] });
const chunks = [chunk({ role: "assistant", content: "25" }), chunk({ content: ".0" }), chunk({}, { finish_reason: "stop" })];
const response = {
  id: "r", object: "response", model: "model-7", status: "completed", usage: { input_tokens: 5, output_tokens: 2 },
  output: [{ type: "message", id: "m", role: "assistant", status: "completed", content: [{ type: "output_text", text: "25.0", annotations: [] }] }],
};
const events = [
  { type: "response.created", response: { ...response, output: [], status: "in_progress" } },
  { type: "response.output_text.delta", delta: "25.0", item_id: "m", output_index: 0, content_index: 0 },
  { type: "response.completed", response },
];

const streamed = (lines) => (reply) => {
  reply.writeHead(200, { "Content-Type": "text/event-stream" });
  for (const line of lines) reply.write(`data: ${JSON.stringify(line)}\n\n`);
  reply.end("data: [DONE]\n\n");
};

/** A gateway and a model in one server; what the agent's client is, and what was traced. */
async function shop(t, options = {}, Client = OpenAI) {
  const { url, asked } = await gateway(t, ({ method, url, body }) => {
    if (url.includes("/events")) return () => undefined;
    if (url.startsWith("/v1/playbooks/")) return { json: view, headers: { ETag: '"3"' } };
    if (url === "/v1/traces") return { status: 202, json: { accepted: body.length } };
    if (body.model === "broken") return { status: 400, json: { error: { message: "no" } } };
    if (url.includes("/chat/completions")) return body.stream ? streamed(chunks) : { json: completion };
    return body.stream ? streamed(events) : { json: response };
  });
  const logged = [];
  const combee = new Combee(url, { log: (line) => logged.push(line) });
  t.after(() => combee.close(0));
  const made = Client === OpenAI
    ? new OpenAI({ baseURL: `${url}/model`, apiKey: "none", maxRetries: 0 })
    : new AzureOpenAI({ endpoint: url, apiKey: "none", apiVersion: "2024-10-21", deployment: "d", maxRetries: 0 });
  const openai = wrapOpenAI(made, { playbook: "shop/rates", combee, ...options });
  const traces = async () => {
    await combee.flush();
    return asked.filter(({ url }) => url === "/v1/traces").flatMap(({ body }) => body);
  };
  const bodies = () => asked.filter(({ url }) => /completions|responses/.test(url)).map(({ body }) => body);
  return { openai, plain: made, traces, bodies, logged };
}

const ask = { model: "m", messages: [{ role: "system", content: "Be exact." }, question] };

function assertTraced([trace, ...others], trajectory) {
  assert.equal(others.length, 0);
  assert.equal(trace.playbook, "shop/rates");
  assert.equal(trace.task, question.content);
  assert.equal(trace.answer, "25.0");
  assert.equal(trace.trajectory, trajectory ?? "system: Be exact.\n\nuser: What is the rate?\n\nassistant: 25.0");
  assert.deepEqual(trace.shown, { version: 3, entry_ids: ["a"] });
  assert.equal(trace.metadata["gen_ai.response.model"], "model-7");
}

test("a completion is shown the playbook first, and traced", async (t) => {
  const { openai, traces, bodies } = await shop(t, { onEnd: (run) => run.outcome({ success: run.answer === "25.0", answer: "25", score: 1 }) });
  const reply = await openai.chat.completions.create(ask);
  assert.equal(reply.choices[0].message.content, "25.0");
  const [{ messages }] = bodies();
  assert.equal(messages.length, 3);
  assert.match(messages[0].content, /^What earlier runs taught[^]*\[a\] In percent\./);
  assert.deepEqual(messages.slice(1), ask.messages);
  const made = await traces();
  assert.equal(made[0].answer, "25"); // the answer that the outcome names; the trajectory keeps the whole reply
  assertTraced([{ ...made[0], answer: "25.0" }]);
  assert.deepEqual([made[0].success, made[0].score], [true, { score: 1 }]);
  assert.equal(made[0].metadata["gen_ai.usage.input_tokens"], "5");
  assert.equal(ask.messages.length, 2); // the agent's own list is as it was
});

test("a response is shown it in its instructions, and traced", async (t) => {
  const { openai, traces, bodies } = await shop(t);
  const reply = await openai.responses.create({ model: "m", instructions: "Be exact.", input: question.content });
  assert.equal(reply.output_text, "25.0");
  assert.match(bodies()[0].instructions, /^What earlier runs taught[^]*\n\nBe exact\.$/);
  assertTraced(await traces());
});

for (const [name, left] of [["read to its end", false], ["left early", true]]) {
  test(`a stream ${name} is traced once, as far as it came`, async (t) => {
    const { openai, traces } = await shop(t);
    let text = "";
    for await (const piece of await openai.chat.completions.create({ ...ask, stream: true })) {
      text += piece.choices[0].delta.content ?? "";
      if (left) break;
    }
    assert.equal(text, left ? "25" : "25.0");
    const [trace, ...others] = await traces();
    assert.deepEqual([trace.answer, others.length], [text, 0]);
  });
}

test("helpers, streams of responses, copies and raw answers are covered", async (t) => {
  const helpers = {
    "chat.stream": async (openai) => (await openai.chat.completions.stream(ask).finalMessage()).content,
    "chat.parse": async (openai) => (await openai.chat.completions.parse(ask)).choices[0].message.content,
    withResponse: async (openai) => (await openai.chat.completions.create(ask).withResponse()).data.choices[0].message.content,
    withOptions: async (openai) => (await openai.withOptions({ timeout: 9_000 }).chat.completions.create(ask)).choices[0].message.content,
    tee: async (openai) => {
      let text = "";
      const [one, two] = (await openai.chat.completions.create({ ...ask, stream: true })).tee();
      for await (const _ of one);
      for await (const piece of two) text += piece.choices[0].delta.content ?? "";
      return text;
    },
  };
  for (const [name, call] of Object.entries(helpers)) {
    const { openai, traces } = await shop(t);
    assert.equal(await call(openai), "25.0", name);
    assertTraced(await traces());
  }
  const { openai, traces } = await shop(t);
  let text = "";
  for await (const event of await openai.responses.create({ model: "m", instructions: "Be exact.", input: [question], stream: true })) {
    if (event.type === "response.output_text.delta") text += event.delta;
  }
  assert.equal(text, "25.0");
  assertTraced(await traces());
});

test("Azure's client is covered", async (t) => {
  const { openai, traces } = await shop(t, {}, AzureOpenAI);
  await openai.chat.completions.create(ask);
  assertTraced(await traces());
});

test("tools' calls are recorded", async (t) => {
  const { openai, traces } = await shop(t);
  const call = { id: "1", type: "function", function: { name: "paid", arguments: '{"order":7}' } };
  const messages = [question, { role: "assistant", content: null, tool_calls: [call] }, { role: "tool", tool_call_id: "1", content: "120" }];
  await openai.chat.completions.create({ model: "m", messages });
  const [trace] = await traces();
  assert.ok(trace.trajectory.includes('"name":"paid"') && trace.trajectory.includes("tool: 120"));
});

test("the client that was given stays as it was", async (t) => {
  const { plain, traces, bodies } = await shop(t);
  await plain.chat.completions.create(ask);
  assert.deepEqual(bodies()[0].messages, ask.messages);
  assert.deepEqual(await traces(), []);
});

test("an error of the model is the agent's, as without Combee, and no trace", async (t) => {
  const { openai, traces } = await shop(t);
  await assert.rejects(openai.chat.completions.create({ ...ask, model: "broken" }), OpenAI.BadRequestError);
  assert.deepEqual(await traces(), []);
});

test("without onEnd one warning says that no outcome is reported, with it none", async (t) => {
  for (const [options, expected] of [[{}, 1], [{ onEnd: () => undefined }, 0]]) {
    const { openai, logged } = await shop(t, options);
    await openai.chat.completions.create(ask);
    await openai.withOptions({ timeout: 9_000 }).responses.create({ model: "m", input: question.content });
    assert.equal(logged.filter((line) => /shop\/rates: runs without an outcome/.test(line)).length, expected);
    assert.equal(logged.length, expected);
  }
});

test("calls go through where the gateway is away or onEnd fails", async (t) => {
  const away = new Combee("http://127.0.0.1:9", { log: () => undefined });
  const onEnd = () => {
    throw new Error("no");
  };
  const { openai, bodies } = await shop(t, { combee: away, onEnd });
  assert.equal((await openai.chat.completions.create(ask)).choices[0].message.content, "25.0");
  assert.deepEqual(bodies()[0].messages, ask.messages);
  assert.equal(away.counts.published, 1);
  await away.close(0);
});

test("what is no client of OpenAI's is refused at once", () => {
  assert.throws(() => wrapOpenAI({}, { playbook: "a", combee: new Combee("http://127.0.0.1:9") }), TypeError);
});

test("a lesson that was learned changes what the model answers", { skip: !MODEL }, async (t) => {
  const combee = new Combee(GATEWAY);
  t.after(() => combee.close());
  const plain = new OpenAI({ baseURL: MODEL, apiKey: "none" });
  const openai = wrapOpenAI(plain, { playbook: "support/refunds", combee });
  const ask = { model: "simulated", messages: [{ role: "user", content: "Refunds: 30; orders: 120. What is the refund rate?" }] };
  const answer = async (client) => (await client.chat.completions.create(ask)).choices[0].message.content;
  assert.ok(!(await answer(plain)).includes("25.0"));
  assert.ok((await answer(openai)).includes("25.0"));
  const counts = await combee.flush();
  assert.deepEqual([counts.delivered, counts.dropped], [1, 0]);
});
