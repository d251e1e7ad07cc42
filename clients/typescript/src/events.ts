/** Server-sent events over node:http: a stream that keeps no process alive, and is reopened when it ends. */

import { request as httpRequest, type IncomingMessage } from "node:http";
import { request as httpsRequest } from "node:https";
import { Backoff, type Connection, reasonOf, sleep } from "./connection.js";

/** Maximum silence of a stream, without even a heartbeat, before it is reopened. */
const SILENCE_MS = 60_000;

export interface Listener {
  /** The stream is open; earlier events may have been missed. */
  opened(): void;
  event(kind: string): void;
}

export class EventStream {
  private readonly backoff = new Backoff(500, 10_000);
  private lastEventId = "";
  private isClosed = false;
  private abort: (() => void) | undefined;

  constructor(
    private readonly connection: Connection,
    private readonly path: string,
    private readonly listener: Listener,
  ) {}

  async run(): Promise<void> {
    while (!this.isClosed) {
      try {
        await this.listen();
      } catch (error) {
        this.connection.warnOnce("stream", `playbooks are not updated for now, the known versions stay: ${reasonOf(error)}`);
      }
      if (this.isClosed) break;
      const pause = sleep(this.backoff.nextMs(), true);
      this.abort = pause.wake;
      await pause.done;
    }
  }

  close(): void {
    this.isClosed = true;
    this.abort?.();
  }

  /** Listen until the stream ends. */
  private listen(): Promise<void> {
    const url = new URL(this.connection.url + this.path);
    const resume: Record<string, string> = this.lastEventId ? { "Last-Event-ID": this.lastEventId } : {};
    const headers = this.connection.headers({ Accept: "text/event-stream", ...resume });
    return new Promise((resolve, reject) => {
      const request = (url.protocol === "https:" ? httpsRequest : httpRequest)(url, { headers, agent: false });
      this.abort = () => request.destroy();
      request.setTimeout(SILENCE_MS, () => request.destroy(new Error("the stream fell silent")));
      request.on("socket", (socket) => socket.unref());
      request.on("error", reject);
      request.on("close", resolve);
      request.on("response", (response) => {
        response.on("error", reject);
        if (response.statusCode === 200) {
          this.read(response);
        } else {
          response.resume();
          reject(new Error(`GET ${this.path}: ${response.statusCode}`));
        }
      });
      request.end();
    });
  }

  private read(response: IncomingMessage): void {
    let rest = "";
    this.connection.isOver("stream");
    this.listener.opened();
    response.setEncoding("utf8");
    response.on("data", (piece: string) => {
      const blocks = (rest + piece).split(/\r?\n\r?\n/);
      rest = blocks.pop() ?? "";
      for (const block of blocks) this.take(block);
    });
  }

  private take(block: string): void {
    let kind = "";
    for (const line of block.split(/\r?\n/)) {
      const [, field, value = ""] = /^([^:]+):? ?(.*)$/.exec(line) ?? [];
      if (field === "event") kind = value;
      if (field === "id") this.lastEventId = value;
    }
    if (!kind) return; // a heartbeat
    this.backoff.reset();
    this.listener.event(kind);
  }
}
