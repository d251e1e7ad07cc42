/** Publishing: a bounded buffer, and the sender that empties it. */

import { Backoff, type Connection, reasonOf, retryAfterMs, sleep } from "./connection.js";
import { type Redact, Redactor, type Kind, redacted } from "./redaction.js";
import type { components } from "./openapi.js";

type Receipt = components["schemas"]["Receipt"];

/** Counts since the client was made, in messages. */
export interface Delivery {
  /** Messages accepted into the buffer. */
  published: number;
  /** Messages acknowledged by the log. */
  delivered: number;
  /** Buffered messages without acknowledgement. */
  waiting: number;
  /** Messages that will never be delivered: buffer full, invalid, or refused. */
  dropped: number;
  /** Number of redacted finds by kind. */
  redacted: Record<string, number>;
}

interface Message {
  kind: Kind;
  json: string;
}

/** Maximum number of messages per request; the gateway accepts at most 500. */
const MOST_AT_ONCE = 100;
const CHARS_AT_ONCE = 1 << 20;
/** Milliseconds that the first message of a batch waits for others. */
const LINGER_MS = 20;
/** Statuses of a receipt; another answer is a proxy's. */
const RECEIPTS = new Set([202, 207]);
/** Statuses of a batch that can never be sent, because it is invalid. */
const REFUSED = new Set([400, 409, 413, 415, 422]);

export class Outbox {
  private readonly waiting: Message[] = [];
  private readonly backoff = new Backoff(100, 5_000);
  private chars = 0;
  private published = 0;
  private delivered = 0;
  private dropped = 0;
  private sending: Promise<void> | undefined;
  private pause: { wake: () => void } | undefined;
  private isClosed = false;
  private isOver = false;

  constructor(
    private readonly connection: Connection,
    private readonly redact: Redact | null,
    private readonly maxMessages: number,
    private readonly maxChars: number,
  ) {}

  /** Add a message; an invalid one, or one without room, is dropped and counted. */
  put(kind: Kind, message: unknown): void {
    let json: string;
    try {
      json = JSON.stringify(message);
    } catch (error) {
      this.drop(1, `it is no message: ${reasonOf(error)}`);
      return;
    }
    if (this.isClosed) {
      this.drop(1, "the client is closed");
    } else if (this.waiting.length >= this.maxMessages || (this.waiting.length && this.chars + json.length > this.maxChars)) {
      this.drop(1, "the buffer is full; is the gateway away? raise maxMessages or maxChars, or publish less");
    } else {
      this.waiting.push({ kind, json });
      this.chars += json.length;
      this.published += 1;
      this.sending ??= this.empty();
    }
  }

  drop(count: number, why: string): void {
    this.dropped += count;
    this.connection.warnOnce(why, `a message was dropped: ${why}; more are only counted`);
  }

  counts(): Delivery {
    return {
      published: this.published,
      delivered: this.delivered,
      waiting: this.waiting.length,
      dropped: this.dropped,
      redacted: this.redact instanceof Redactor ? { ...this.redact.counts } : {},
    };
  }

  /** Deliver waiting messages; resolves after `timeoutMs` at the latest. */
  async flush(timeoutMs: number): Promise<Delivery> {
    const timeout = sleep(Math.max(0, timeoutMs));
    const isOver = timeout.done.then(() => true);
    while (this.sending) {
      this.pause?.wake();
      if (await Promise.race([this.sending.then(() => false), isOver])) break;
    }
    timeout.wake();
    return this.counts();
  }

  /** Deliver waiting messages, and accept no more. */
  async close(timeoutMs: number): Promise<Delivery> {
    this.isClosed = true;
    await this.flush(timeoutMs);
    this.isOver = true;
    this.pause?.wake();
    this.connection.close();
    const counts = this.counts();
    if (counts.waiting) this.connection.warnOnce("closed", `closed with ${counts.waiting} messages not delivered`);
    return counts;
  }

  private async empty(): Promise<void> {
    await this.paused(LINGER_MS, false);
    while (this.waiting.length && !this.isOver) {
      const batch = this.first();
      const waitMs = await this.send(batch);
      if (waitMs === undefined) {
        this.forget(batch.length);
        this.backoff.reset();
        this.connection.isOver("away");
      } else {
        await this.paused(waitMs, true);
      }
    }
    this.sending = undefined;
  }

  private async paused(ms: number, isBackground: boolean): Promise<void> {
    const pause = sleep(ms, isBackground);
    this.pause = pause;
    await pause.done;
    this.pause = undefined;
  }

  /** Return the oldest messages of one kind, which stay until they are acknowledged. */
  private first(): Message[] {
    const kind = this.waiting[0]?.kind;
    let chars = 0;
    const end = this.waiting.findIndex((message, at) => {
      chars += message.json.length;
      return message.kind !== kind || at === MOST_AT_ONCE || (at > 0 && chars > CHARS_AT_ONCE);
    });
    return this.waiting.slice(0, end < 0 ? undefined : end);
  }

  private forget(count: number): void {
    for (const message of this.waiting.splice(0, count)) this.chars -= message.json.length;
  }

  /** Send; return undefined once all messages are settled, else the milliseconds until the next attempt. */
  private async send(batch: Message[]): Promise<number | undefined> {
    const bodies = batch.flatMap((message) => this.prepared(message));
    return bodies.length ? this.post(batch[0]!.kind, bodies) : undefined;
  }

  private prepared(message: Message): string[] {
    if (!this.redact) return [message.json];
    try {
      return [JSON.stringify(redacted(message.kind, JSON.parse(message.json), this.redact))];
    } catch (error) {
      // A user's redactor may throw; nothing is sent unredacted.
      this.drop(1, `redaction failed: ${reasonOf(error)}`);
      return [];
    }
  }

  private async post(kind: Kind, bodies: string[]): Promise<number | undefined> {
    try {
      const response = await this.connection.fetch(`/v1/${kind}`, {
        method: "POST",
        body: `[${bodies.join(",")}]`,
        headers: { "Content-Type": "application/json" },
      });
      if (RECEIPTS.has(response.status)) {
        this.settle((await response.json()) as Receipt, bodies.length);
        return undefined;
      }
      const problem = (await response.text()).slice(0, 300);
      if (REFUSED.has(response.status)) return await this.postEach(kind, bodies, problem);
      this.connection.warnOnce("away", `sending fails for now, messages are kept and sent later: ${response.status} ${problem}`);
      return Math.max(retryAfterMs(response), this.backoff.nextMs());
    } catch (error) {
      this.connection.warnOnce("away", `sending fails for now, messages are kept and sent later: ${reasonOf(error)}`);
      return this.backoff.nextMs();
    }
  }

  /** Find the invalid message of a refused batch; repeats by a later attempt are harmless. */
  private async postEach(kind: Kind, bodies: string[], problem: string): Promise<number | undefined> {
    if (bodies.length === 1) {
      this.drop(1, problem);
      return undefined;
    }
    for (const body of bodies) {
      for (let waitMs = await this.post(kind, [body]); waitMs !== undefined; waitMs = await this.post(kind, [body])) {
        if (this.isOver) return waitMs;
        await this.paused(waitMs, true);
      }
    }
    return undefined;
  }

  /** Count what a receipt says; throws if it is not the receipt of `count` messages. */
  private settle(receipt: Receipt, count: number): void {
    const refused = receipt.refused ?? 0;
    if ((receipt.accepted ?? 0) + (receipt.repeated ?? 0) + refused !== count) throw new Error("the answer is no receipt");
    this.delivered += count - refused;
    if (!refused) return;
    const problem = receipt.items?.find((item) => item.status === "refused")?.problem;
    this.drop(refused, `the gateway refused it: ${problem?.detail ?? problem?.title ?? "it did not say why"}`);
  }
}
