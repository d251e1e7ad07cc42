/**
 * `wrapOpenAI`: a client of OpenAI's library whose calls are shown the playbook and become traces.
 *
 * The library is not imported. Every helper of its clients (`create`, `parse`, `stream`, `withResponse`, …) ends in one
 * method, `request`: the copy's own changes the body and reads the answer.
 */

import { randomUUID } from "node:crypto";
import type { Combee, Trace } from "./client.js";
import { reasonOf } from "./connection.js";
import type { PlaybookView } from "./view.js";

/** Any JSON; the agent gets whatever the server sends. */
type Json = any;

const NO_OUTCOME =
  "runs without an outcome teach what the model believes, not what worked: say how each run went with" +
  " onEnd: (run) => run.outcome({ success: … })";

export interface WrapOptions {
  combee: Combee;
  playbook: string;
  label?: string;
  fallback?: string;
  /** Name of the reader, see `playbook`. */
  caller?: string;
  /** Called with each call's run before it is handed over, for example to report its outcome; without it, one warning. */
  onEnd?: (run: Run) => void;
}

/** One call with its playbook, input and answer; it becomes one trace. */
export class Run {
  readonly traceId = `t-${randomUUID()}`;
  answer = "";
  private said: Partial<Trace> = {};

  constructor(
    /** The playbook shown to the agent. */
    readonly playbook: PlaybookView,
    readonly task: string,
  ) {}

  /** Report the outcome: feedback, success, scores, the answer alone if the reply has more, and the right one if known. */
  outcome(outcome: Pick<Trace, "answer" | "feedback" | "success" | "score" | "target">): void {
    this.said = { ...this.said, ...outcome };
  }

  /** The trace, once the answer has arrived. */
  trace(steps: string[], metadata: Record<string, string>): Trace {
    return {
      trace_id: this.traceId,
      playbook: this.playbook.name,
      task: this.task,
      trajectory: [...steps, `assistant: ${this.answer}`].join("\n\n"),
      answer: this.answer,
      shown: this.playbook.shown(),
      metadata,
      ...this.said,
    };
  }
}

interface Endpoint {
  /** Return a call's input as messages. */
  messages(body: Json): Json[];
  /** Return the body with a playbook in front, so that providers' prompt caches hit. */
  withPrompt(body: Json, prompt: string): Json;
  /** Add a piece of a stream to its reply. */
  add(reply: Json, chunk: Json): void;
}

const CHAT: Endpoint = {
  messages: (body) => [...(body.messages ?? [])],
  withPrompt(body, prompt) {
    if (!Array.isArray(body.messages)) return body; // the server refuses it
    const role = body.messages[0]?.role === "developer" ? "developer" : "system";
    return { ...body, messages: [{ role, content: prompt }, ...body.messages] };
  },
  add(reply, chunk) {
    reply.model = chunk.model ?? reply.model;
    reply.usage = chunk.usage ?? reply.usage;
    reply.choices ??= [{ message: { content: "", refusal: "", tool_calls: [] } }];
    for (const choice of chunk.choices ?? []) {
      if (choice.index) continue;
      const [{ message }] = reply.choices;
      reply.choices[0].finish_reason = choice.finish_reason ?? reply.choices[0].finish_reason;
      message.content += choice.delta?.content ?? "";
      message.refusal += choice.delta?.refusal ?? "";
      for (const call of choice.delta?.tool_calls ?? []) {
        const known = (message.tool_calls[call.index ?? 0] ??= { function: { name: "", arguments: "" } });
        known.function.name += call.function?.name ?? "";
        known.function.arguments += call.function?.arguments ?? "";
      }
    }
  },
};

const RESPONSES: Endpoint = {
  messages(body) {
    const given = body.input ?? [];
    const items = typeof given === "string" ? [{ role: "user", content: given }] : [...given].map(itemAsMessage);
    return body.instructions ? [{ role: "system", content: body.instructions }, ...items] : items;
  },
  // Not an item of the input, which the server would add to the conversation again at every turn.
  withPrompt: (body, prompt) => ({ ...body, instructions: [prompt, body.instructions].filter(Boolean).join("\n\n") }),
  add(reply, chunk) {
    if (chunk.type === "response.output_text.delta") reply.output_text = (reply.output_text ?? "") + (chunk.delta ?? "");
    if (!chunk.response) return;
    const { output, model, status, usage } = chunk.response;
    Object.assign(reply, { model, status, usage }, output?.length ? { output } : {});
  },
};

const ENDPOINTS: Record<string, Endpoint> = { "/chat/completions": CHAT, "/responses": RESPONSES };

/**
 * Return a copy of an OpenAI client whose chat completions and responses, also streamed, learn.
 *
 * Throws a TypeError if `client` is not a client of `openai` 5 or newer; afterwards Combee itself never throws.
 */
export function wrapOpenAI<C extends object>(client: C, options: WrapOptions): C {
  const original = client as Json;
  if (typeof original.request !== "function" || !(original.chat?._client || original.responses?._client)) {
    throw new TypeError("wrapOpenAI needs a client of the package openai, version 5 or newer");
  }
  // Only the original has its private fields, so methods that need them run there.
  const copy = Object.create(original);
  copy.makeRequest = (...rest: unknown[]) => original.makeRequest(...rest);
  copy.withOptions = (more: unknown) => wrapOpenAI(original.withOptions(more), options);
  copy.request = (asked: unknown, ...rest: unknown[]) => recorded(original, asked, rest, options);
  for (const name of ["chat", "responses"]) if (original[name]?._client) copy[name] = rebound(original[name], copy);
  return copy;
}

/** Return a part of a client that, with its own parts, calls through another client. */
function rebound(part: Json, client: Json): Json {
  const copy = Object.assign(Object.create(Object.getPrototypeOf(part)), part, { _client: client });
  for (const [name, value] of Object.entries(part)) {
    if (name !== "_client" && (value as Json)?._client) copy[name] = rebound(value, client);
  }
  return copy;
}

function recorded(client: Json, asked: unknown, rest: unknown[], options: WrapOptions): Json {
  let call: Call | undefined;
  const changed = Promise.resolve(asked).then(async (given: Json) => {
    call = await begun(given, options);
    return call ? { ...given, body: call.body } : given;
  });
  const reply = client.request(changed, ...rest);
  return typeof reply._thenUnwrap === "function" ? reply._thenUnwrap((value: Json) => call?.observe(value) ?? value) : reply;
}

/** Return the call to record, undefined if it calls no model or cannot be shown the playbook. */
async function begun(given: Json, options: WrapOptions): Promise<Call | undefined> {
  try {
    const endpoint = ENDPOINTS[String(given.path).split("?", 1)[0]!];
    if (!endpoint || String(given.method).toLowerCase() !== "post" || !given.body || typeof given.body !== "object") {
      return undefined;
    }
    const { combee, playbook, label, fallback, caller } = options;
    const asked = Object.entries({ label, fallback, caller }).filter(([, value]) => value !== undefined);
    return new Call(endpoint, given.body, await combee.playbook(playbook, Object.fromEntries(asked)), options);
  } catch {
    return undefined; // the agent's call must not fail here
  }
}

class Call {
  readonly body: Json;
  private readonly run: Run;
  private readonly steps: string[];
  private isRecorded = false;

  constructor(
    private readonly endpoint: Endpoint,
    asked: Json,
    view: PlaybookView,
    private readonly options: WrapOptions,
  ) {
    const messages = endpoint.messages(asked);
    const prompt = view.prompt();
    this.steps = messages.map((message) => `${message.role ?? "message"}: ${content(message)}`);
    this.run = new Run(view, content(messages.find((message) => message.role === "user")));
    this.body = prompt ? endpoint.withPrompt(asked, prompt) : asked;
  }

  /** Return the unchanged reply and record it, a stream when it ends or is left. */
  observe(reply: Json): Json {
    if (!this.body.stream) {
      this.record(reply);
      return reply;
    }
    const key = typeof reply?.iterator === "function" ? "iterator" : Symbol.asyncIterator;
    if (typeof reply?.[key] !== "function") return reply;
    const chunks = reply[key].bind(reply);
    reply[key] = () => this.observed(chunks());
    return reply;
  }

  private async *observed(chunks: AsyncIterable<Json>): AsyncGenerator<Json> {
    const reply: Json = {};
    try {
      for await (const chunk of chunks) {
        try {
          this.endpoint.add(reply, chunk);
        } catch {
          // A piece of another shape is only passed to the agent.
        }
        yield chunk;
      }
    } finally {
      this.record(reply);
    }
  }

  private record(reply: Json): void {
    if (this.isRecorded) return;
    this.isRecorded = true;
    try {
      this.run.answer = answerText(reply);
      const metadata = metadataOf(reply, String(this.body.model ?? ""));
      if (!this.options.onEnd) this.options.combee.warn(`outcome ${this.options.playbook}`, `${this.options.playbook}: ${NO_OUTCOME}`);
      try {
        this.options.onEnd?.(this.run);
      } finally {
        this.options.combee.trace(this.run.trace(this.steps, metadata));
      }
    } catch (error) {
      this.options.combee.warn("record", `a call was not recorded whole, or onEnd failed: ${reasonOf(error)}`);
    }
  }
}

// ---- texts of calls and replies

/** Return an item of a conversation as a message; the role of a tool's call or result is its type. */
function itemAsMessage(item: Json): Json {
  if (item.type === "function_call") return { role: "assistant", content: callsText([item]) };
  return { role: item.role ?? item.type ?? "item", content: item.content ?? item.output ?? item.arguments ?? "" };
}

/** Return a message's content as text, with its tool calls. */
function content(message: Json): string {
  const said = message?.content;
  const text = Array.isArray(said)
    ? said.map((part) => String(part?.text ?? `[${part?.type ?? "part"}]`)).join("\n") // images are replaced by their type
    : String(said ?? "");
  return joined(text, message?.tool_calls?.length ? JSON.stringify(message.tool_calls) : "");
}

/** Return the text of a response, or of a completion's first choice, with tool calls as JSON. */
function answerText(reply: Json): string {
  const message = reply?.choices?.[0]?.message;
  if (message) return joined(message.content || message.refusal || "", callsText(message.tool_calls?.map((call: Json) => call?.function)));
  const items: Json[] = reply?.output ?? [];
  const parts = items.flatMap((item) => item.content ?? []).filter((part) => part.type === "output_text");
  const text = parts.length ? parts.map((part) => part.text).join("") : (reply?.output_text ?? "");
  return joined(text, callsText(items.filter((item) => item.type === "function_call")));
}

function callsText(calls: Json[] | undefined): string {
  const named = (calls ?? []).map((call) => ({ name: String(call?.name ?? ""), arguments: String(call?.arguments ?? "") }));
  return named.length ? JSON.stringify(named) : "";
}

function joined(...parts: string[]): string {
  return parts.filter(Boolean).join("\n");
}

/** Return a call's attributes under OpenTelemetry's names (GenAI semantic conventions). */
function metadataOf(reply: Json, model: string): Record<string, string> {
  const fields = {
    "gen_ai.request.model": model,
    "gen_ai.response.model": reply?.model,
    "gen_ai.response.finish_reasons": reply?.choices?.[0]?.finish_reason ?? reply?.status,
    "gen_ai.usage.input_tokens": reply?.usage?.input_tokens ?? reply?.usage?.prompt_tokens,
    "gen_ai.usage.output_tokens": reply?.usage?.output_tokens ?? reply?.usage?.completion_tokens,
  };
  const known = Object.entries(fields).filter(([, value]) => value !== undefined && value !== null && value !== "");
  return Object.fromEntries(known.map(([name, value]) => [name, String(value)]));
}
