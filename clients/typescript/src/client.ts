/** The client for publishing and reading. Only its construction throws: without an address. */

import { randomUUID } from "node:crypto";
import { Connection, type Log } from "./connection.js";
import type { components } from "./openapi.js";
import { type Delivery, Outbox } from "./outbox.js";
import { type Notify, type ReadOptions, Reader } from "./reading.js";
import { type Kind, type Redact, Redactor } from "./redaction.js";
import { addressOf, keyOf } from "./running.js";
import type { PlaybookView } from "./view.js";

type Schemas = components["schemas"];
/** A single number is the score named `score`. */
type Scored<T> = Omit<T, "score"> & { score?: Record<string, number> | number };

export type Reflection = Schemas["NewReflection"];
export type Trace = Scored<Schemas["NewTrace"]>;
export type Outcome = Scored<Schemas["NewOutcome"]>;

export interface ClientOptions {
  /** The gateway's key; default `COMBEE_GATEWAY_KEY`. */
  apiKey?: string;
  /** Maximum number of buffered messages; default 10,000. */
  maxMessages?: number;
  /** Maximum size of the buffer in characters of JSON; default 32 Mi. */
  maxChars?: number;
  /** A function that replaces the default redaction; null turns it off. */
  redact?: ((text: string) => string) | null;
  /** Receives each warning once; default `console.warn`. */
  log?: Log;
}

const FLUSH_MS = 10_000;

export class Combee {
  private readonly connection: Connection;
  private readonly outbox: Outbox;
  private readonly reader: Reader;

  /**
   * `url`: the gateway's address, such as `http://127.0.0.1:8750`; without it the environment's (`COMBEE_GATEWAY_URL`),
   * else that of the `combee up` that runs on this machine. Throws if there is none, or if several run.
   */
  constructor(url?: string, options: ClientOptions = {}) {
    const log = options.log ?? console.warn;
    this.connection = new Connection(addressOf(url, process.env, log), keyOf(options.apiKey, process.env), log);
    const redact: Redact | null = options.redact === undefined ? new Redactor() : options.redact;
    this.outbox = new Outbox(this.connection, redact, options.maxMessages ?? 10_000, options.maxChars ?? 32 << 20);
    this.reader = new Reader(this.connection);
  }

  /** Hand over a lesson that the agent drew itself; return its id. */
  publish(reflection: Reflection): string {
    const id = reflection?.reflection_id || `r-${randomUUID()}`;
    this.put("reflections", { ...reflection, reflection_id: id });
    return id;
  }

  /** Hand over the trace of one run; return its id. */
  trace(trace: Trace): string {
    const id = trace?.trace_id || `t-${randomUUID()}`;
    this.put("traces", { ...trace, trace_id: id });
    return id;
  }

  /** Report the outcome of a run; it is counted for the version of `shown`, or of the trace whose id is `run_id`. */
  outcome(outcome: Outcome): void {
    this.put("outcomes", outcome);
  }

  /** Return a playbook from memory; wait, not for long, only for an unknown one. Never rejects. */
  playbook(name: string, options: ReadOptions = {}): Promise<PlaybookView> {
    return this.reader.playbook(name, options);
  }

  /** Call `notify` with the present playbook and with each change; return a function that ends it. */
  onUpdate(name: string, notify: Notify, options: Pick<ReadOptions, "label" | "caller"> = {}): () => void {
    return this.reader.subscribe(name, notify, options);
  }

  /** Counts of all messages so far. */
  get counts(): Delivery {
    return this.outbox.counts();
  }

  /** Deliver waiting messages; resolves after `timeoutMs` at the latest. */
  flush(timeoutMs = FLUSH_MS): Promise<Delivery> {
    return this.outbox.flush(timeoutMs);
  }

  /** Deliver waiting messages and disconnect. */
  close(timeoutMs = FLUSH_MS): Promise<Delivery> {
    this.reader.close();
    return this.outbox.close(timeoutMs);
  }

  /** @internal Log each reason once, for an integration. */
  warn(reason: string, message: string): void {
    this.connection.warnOnce(reason, message);
  }

  private put(kind: Kind, message: Reflection | Trace | Outcome): void {
    const given = message && "score" in message ? message.score : undefined;
    const score = typeof given === "number" ? { score: { score: given } } : {};
    // A branch learns from its playbook's input.
    const playbook = typeof message?.playbook === "string" ? { playbook: message.playbook.replace(/@.*$/, "") } : {};
    this.outbox.put(kind, { created_at_ms: Date.now(), ...message, ...score, ...playbook });
  }
}
