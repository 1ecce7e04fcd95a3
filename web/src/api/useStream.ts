import { useEffect, useState } from "react";
import { follow } from "./follow";

export type StreamPhase = "connecting" | "live" | "interrupted" | "ended";

export interface StreamSource<Item, Held> {
  /** Address of the stream. */
  url: string;
  empty: Held;
  /** Merges new items into the held ones; returns a new value. */
  fold: (held: Held, items: Item[]) => Held;
  /** What lies before the stream, when there is a shorter way to it than the stream itself. */
  history?: (signal: AbortSignal) => Promise<Item[]>;
}

/** Pieces of a long history arrive faster than the page should draw. */
const REDRAW_MS = 200;

/**
 * Everything a source has given so far, then live. The source must not change between renders (memoise it).
 * A hidden page holds no connection: browsers allow six to one server, over all tabs.
 */
export function useStream<Item extends { id: number }, Held>(
  source: StreamSource<Item, Held>,
): { held: Held; phase: StreamPhase } {
  const [state, setState] = useState<{ held: Held; phase: StreamPhase }>({ held: source.empty, phase: "connecting" });

  useEffect(() => {
    setState({ held: source.empty, phase: "connecting" });
    const reader = new Reader<Item>(source.url, source.history, {
      onItems: (items) => setState((now) => ({ ...now, held: source.fold(now.held, items) })),
      onPhase: (phase) => setState((now) => ({ ...now, phase })),
    });
    const seen = () => (document.hidden ? reader.pause() : reader.resume());
    seen();
    document.addEventListener("visibilitychange", seen);
    return () => {
      document.removeEventListener("visibilitychange", seen);
      reader.pause();
    };
  }, [source]);

  return state;
}

interface Listener<Item> {
  onItems: (items: Item[]) => void;
  onPhase: (phase: StreamPhase) => void;
}

/** One source, read from where it was left whenever it is resumed. */
class Reader<Item extends { id: number }> {
  private lastId = 0;
  private stop: AbortController | null = null;
  private ended = false;
  private historyRead = false;
  private pending: Item[] = [];
  private timer: ReturnType<typeof setTimeout> | undefined;

  private readonly url: string;
  private readonly history: ((signal: AbortSignal) => Promise<Item[]>) | undefined;
  private readonly listener: Listener<Item>;

  constructor(url: string, history: ((signal: AbortSignal) => Promise<Item[]>) | undefined, listener: Listener<Item>) {
    this.url = url;
    this.history = history;
    this.listener = listener;
  }

  resume(): void {
    if (this.ended || this.stop !== null) return;
    this.stop = new AbortController();
    void this.read(this.stop.signal);
  }

  pause(): void {
    this.stop?.abort();
    this.stop = null;
    this.flush();
  }

  private async read(signal: AbortSignal): Promise<void> {
    if (this.history !== undefined && !this.historyRead) {
      try {
        this.take(await this.history(signal), signal);
        this.historyRead = true;
      } catch {
        // The stream below gives the same from its start, only slower; and it waits for a server that is away.
      }
    }
    await follow({
      url: this.url,
      lastId: this.lastId === 0 ? "" : String(this.lastId),
      signal,
      onEvents: (events) => this.take(events.map(({ data }) => JSON.parse(data) as Item), signal),
      onConnected: (connected) => {
        if (!signal.aborted) this.listener.onPhase(connected ? "live" : "interrupted");
      },
    });
    if (signal.aborted) return;
    this.ended = true;
    this.flush();
    this.listener.onPhase("ended");
  }

  private take(items: Item[], signal: AbortSignal): void {
    if (signal.aborted) return;
    const fresh = items.filter(({ id }) => id > this.lastId);
    this.lastId = fresh.at(-1)?.id ?? this.lastId;
    this.pending.push(...fresh);
    this.timer ??= setTimeout(() => this.flush(), REDRAW_MS);
  }

  private flush(): void {
    clearTimeout(this.timer);
    this.timer = undefined;
    if (this.pending.length === 0) return;
    const items = this.pending;
    this.pending = [];
    this.listener.onItems(items);
  }
}
