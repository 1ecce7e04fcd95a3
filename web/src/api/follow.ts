/** Follows one event stream for as long as its signal allows, through any number of connections. */

import { authorizedFetch } from "./client";
import { EventStreamParser, type ServerEvent } from "./sse";

export interface FollowOptions {
  url: string;
  /** Id of the last event already held; "" for all. */
  lastId: string;
  signal: AbortSignal;
  onEvents: (events: ServerEvent[]) => void;
  /** True while a connection stands. */
  onConnected: (connected: boolean) => void;
}

const FIRST_DELAY_MS = 500;
const LONGEST_DELAY_MS = 10_000;
/** The server sends a comment at least every 15 s; longer silence means a dead connection. */
const SILENCE_MS = 45_000;

/**
 * Reads until the server says that nothing will come any more (an event `end`) or `signal` aborts.
 * A stream that only breaks off is opened again from the last id.
 */
export async function follow({ url, lastId, signal, onEvents, onConnected }: FollowOptions): Promise<void> {
  let id = lastId;
  let delay = FIRST_DELAY_MS;
  while (!signal.aborted) {
    const parser = new EventStreamParser(id);
    try {
      const ended = await connection(url, id, signal, parser, (events) => {
        id = events.at(-1)?.id ?? id;
        delay = FIRST_DELAY_MS;
        onEvents(events);
      }, onConnected);
      if (ended) return;
    } catch {
      // Any failure is answered in the same way: wait, then connect again from the last id.
    }
    onConnected(false);
    if (signal.aborted) return;
    await pause(parser.retryMs ?? delay, signal);
    delay = Math.min(delay * 2, LONGEST_DELAY_MS);
  }
}

async function connection(
  url: string,
  lastId: string,
  signal: AbortSignal,
  parser: EventStreamParser,
  onEvents: (events: ServerEvent[]) => void,
  onConnected: (connected: boolean) => void,
): Promise<boolean> {
  const silence = new AbortController();
  const headers: Record<string, string> = { Accept: "text/event-stream" };
  if (lastId !== "") headers["Last-Event-ID"] = lastId;
  const response = await authorizedFetch(
    new Request(new URL(url, globalThis.location.origin), {
      headers,
      signal: AbortSignal.any([signal, silence.signal]),
    }),
  );
  const reader = response.ok ? response.body?.pipeThrough(new TextDecoderStream()).getReader() : undefined;
  if (reader === undefined) {
    await response.body?.cancel();
    throw new Error(`stream answered ${response.status}`);
  }
  onConnected(true);
  for (;;) {
    const timer = setTimeout(() => silence.abort(), SILENCE_MS);
    const { done, value } = await reader.read().finally(() => clearTimeout(timer));
    if (done) return false;
    const events = parser.push(value);
    const items = events.filter(({ event }) => event !== "end" && event !== "problem");
    if (items.length > 0) onEvents(items);
    if (events.some(({ event }) => event === "end")) {
      await reader.cancel();
      return true;
    }
  }
}

function pause(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, ms);
    signal.addEventListener("abort", () => {
      clearTimeout(timer);
      resolve();
    }, { once: true });
  });
}
