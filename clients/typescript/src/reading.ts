/** Reading: playbooks stay in memory; the gateway pushes changes, and ETags avoid repeated transfers. */

import { type Connection, reasonOf, sleep } from "./connection.js";
import { EventStream } from "./events.js";
import { type Playbook, PlaybookView } from "./view.js";

export interface ReadOptions {
  /** A label, such as `production`; by default the version that agents read. */
  label?: string;
  /** The version, which has precedence over the label. */
  version?: number;
  /** The text if no version is known. */
  fallback?: string;
  /** Name of the reader; only a named caller may be shown a candidate that is tried on a share of the callers. */
  caller?: string;
  /** Maximum wait for an unknown playbook; default 2,000. */
  timeoutMs?: number;
}

export type Notify = (playbook: PlaybookView) => void;

const WAIT_MS = 2_000;
/** Time during which a playbook that was not found is not waited for again. */
const NOT_AGAIN_MS = 10_000;
/** Interval of repeated reads during a canary, which may end by time without an event. */
const CANARY_CHECK_MS = 30_000;

/** The gateway's answer to one request for one playbook. */
class Reading {
  playbook: Playbook | null = null;
  canary = "";
  isAnswered = false;
  notBefore = 0;
  readonly subscribers = new Set<Notify>();
  private etag = "";
  private refreshing: Promise<void> | undefined;
  private isStale = false;

  constructor(
    private readonly connection: Connection,
    readonly name: string,
    private readonly path: string,
  ) {}

  view(fallback = ""): PlaybookView {
    return new PlaybookView(this.name, this.playbook, fallback, this.canary);
  }

  /** Read again, one request at a time; a change during a request causes another one afterwards. */
  refresh(): Promise<void> {
    this.isStale = true;
    this.refreshing ??= this.settle();
    return this.refreshing;
  }

  private async settle(): Promise<void> {
    try {
      while (this.isStale) {
        this.isStale = false;
        await this.ask();
      }
    } catch (error) {
      this.connection.warnOnce("reading", `a playbook cannot be read for now: ${reasonOf(error)}`);
    } finally {
      this.refreshing = undefined;
    }
  }

  private async ask(): Promise<void> {
    const headers: Record<string, string> = this.etag ? { "If-None-Match": this.etag } : {};
    const response = await this.connection.fetch(this.path, { headers });
    const known = response.status === 404 ? null : response.status === 304 ? this.playbook : undefined;
    if (known === undefined && !response.ok) {
      throw new Error(`${response.status} ${(await response.text()).slice(0, 300)}`);
    }
    const before = this.playbook;
    this.playbook = known === undefined ? ((await response.json()) as Playbook) : known;
    if (known === null) await response.arrayBuffer();
    this.etag = this.playbook ? (response.headers.get("etag") ?? "") : "";
    this.canary = response.headers.get("combee-canary") ?? "";
    this.isAnswered = true;
    this.connection.isOver("reading");
    if (this.playbook !== before) this.notify();
  }

  private notify(): void {
    for (const subscriber of this.subscribers) this.tell(subscriber);
  }

  tell(subscriber: Notify): void {
    try {
      subscriber(this.view());
    } catch (error) {
      this.connection.warnOnce("subscriber", `a function given to onUpdate failed: ${reasonOf(error)}`);
    }
  }
}

export class Reader {
  private readonly readings = new Map<string, Reading>();
  private readonly streams = new Map<string, EventStream>();
  private readonly callers = new Set<Reading>();
  private canaryCheck: NodeJS.Timeout | undefined;
  private isClosed = false;

  constructor(private readonly connection: Connection) {}

  /** Return a playbook from memory; wait only for a playbook that is not known yet. Never rejects. */
  async playbook(name: string, options: ReadOptions): Promise<PlaybookView> {
    const reading = this.found(name, options);
    if (!reading) return new PlaybookView(String(name), null, options.fallback ?? "", "");
    if (!this.isClosed && this.isWorthWaiting(reading, options)) {
      reading.notBefore = Date.now() + NOT_AGAIN_MS;
      const timeout = sleep(options.timeoutMs ?? WAIT_MS);
      await Promise.race([reading.refresh(), timeout.done]);
      timeout.wake();
    }
    return reading.view(options.fallback);
  }

  subscribe(name: string, notify: Notify, options: ReadOptions): () => void {
    const reading = this.found(name, options);
    if (!reading) return () => undefined;
    reading.subscribers.add(notify);
    if (reading.playbook) reading.tell(notify);
    else void reading.refresh();
    return () => reading.subscribers.delete(notify);
  }

  close(): void {
    this.isClosed = true;
    clearInterval(this.canaryCheck);
    for (const stream of this.streams.values()) stream.close();
  }

  private isWorthWaiting(reading: Reading, options: ReadOptions): boolean {
    const isUnknown = !reading.isAnswered || (options.version !== undefined && !reading.playbook);
    return isUnknown && Date.now() >= reading.notBefore;
  }

  /** Return the reading, undefined for an invalid name. */
  private found(name: string, options: ReadOptions): Reading | undefined {
    try {
      return this.reading(name, options);
    } catch (error) {
      this.connection.warnOnce("name", `a playbook cannot be read, its fallback is given: ${reasonOf(error)}`);
      return undefined;
    }
  }

  private reading(name: string, options: ReadOptions): Reading {
    const path = playbookPath(name);
    const query = queryOf(options);
    const known = this.readings.get(path + query);
    if (known) return known;
    const reading = new Reading(this.connection, name, path + query);
    if (this.isClosed) return reading;
    this.readings.set(path + query, reading);
    if (options.version === undefined) this.follow(name);
    if (options.caller) this.watchCanary(reading);
    return reading;
  }

  private follow(name: string): void {
    if (this.streams.has(name)) return;
    const refresh = (): void => {
      for (const reading of this.readings.values()) if (reading.name === name) void reading.refresh();
    };
    // Follow every version, judged or not: the gateway decides which one an agent reads.
    const path = `${playbookPath(name)}/events?label=latest&format=md`;
    const stream = new EventStream(this.connection, path, { opened: refresh, event: refresh });
    this.streams.set(name, stream);
    void stream.run();
  }

  private watchCanary(reading: Reading): void {
    this.callers.add(reading);
    this.canaryCheck ??= setInterval(() => {
      for (const one of this.callers) void one.refresh();
    }, CANARY_CHECK_MS).unref();
  }
}

function playbookPath(name: string): string {
  return `/v1/playbooks/${encodeURIComponent(name)}`;
}

function queryOf({ version, label, caller }: ReadOptions): string {
  const query = new URLSearchParams();
  if (version !== undefined) query.set("version", String(version));
  else if (label) query.set("label", label);
  if (caller) query.set("caller", caller);
  return query.size ? `?${query}` : "";
}
