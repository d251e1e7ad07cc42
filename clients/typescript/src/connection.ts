/** The gateway's address and key, time-outs, pauses and logging. */

export type Log = (message: string) => void;

const LONGEST_RETRY_AFTER_MS = 30_000;
const TIMEOUT_MS = 15_000;

export class Connection {
  readonly url: string;
  private readonly said = new Set<string>();
  private readonly closing = new AbortController();

  constructor(
    url: string,
    private readonly apiKey: string | undefined,
    private readonly log: Log,
  ) {
    this.url = url.replace(/\/+$/, "");
  }

  headers(more: Record<string, string> = {}): Record<string, string> {
    return this.apiKey ? { Authorization: `Bearer ${this.apiKey}`, ...more } : more;
  }

  /** Send a request to the gateway, which redirects nowhere; rejects if it does not answer in time. */
  fetch(path: string, options: { method?: string; body?: string; headers?: Record<string, string> } = {}): Promise<Response> {
    return fetch(this.url + path, {
      ...options,
      redirect: "manual",
      headers: this.headers(options.headers),
      signal: AbortSignal.any([AbortSignal.timeout(TIMEOUT_MS), this.closing.signal]),
    });
  }

  /** Abort open requests. */
  close(): void {
    this.closing.abort();
  }

  /** Log each reason once, so that problems beyond the agent's control do not fill its log. */
  warnOnce(reason: string, message: string): void {
    if (this.said.has(reason)) return;
    this.said.add(reason);
    try {
      this.log(`combee: ${message}`);
    } catch {
      // A user's logger failed, and there is no other place to report it.
    }
  }

  /** Allow a reason to be logged again after the problem is over. */
  isOver(reason: string): void {
    this.said.delete(reason);
  }
}

/** Exponential backoff with jitter, so that the agents of a fleet do not reconnect all at once. */
export class Backoff {
  private pauseMs: number;

  constructor(
    private readonly firstMs: number,
    private readonly longestMs: number,
  ) {
    this.pauseMs = firstMs;
  }

  nextMs(): number {
    const pauseMs = this.pauseMs;
    this.pauseMs = Math.min(2 * pauseMs, this.longestMs);
    return pauseMs * (0.5 + Math.random() / 2);
  }

  reset(): void {
    this.pauseMs = this.firstMs;
  }
}

export function retryAfterMs(response: Response): number {
  const seconds = Number(response.headers.get("retry-after") ?? 0);
  return Number.isFinite(seconds) ? Math.min(Math.max(0, seconds * 1000), LONGEST_RETRY_AFTER_MS) : 0;
}

/** Return a sleep and the function that ends it early. With `isBackground` it keeps no process alive. */
export function sleep(ms: number, isBackground = false): { done: Promise<void>; wake: () => void } {
  let wake = (): void => undefined;
  const done = new Promise<void>((resolve) => {
    const timer = setTimeout(resolve, ms);
    if (isBackground) timer.unref();
    wake = () => {
      clearTimeout(timer);
      resolve();
    };
  });
  return { done, wake };
}

export function reasonOf(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  return error.cause instanceof Error ? `${error.message}: ${error.cause.message}` : error.message;
}
