/**
 * Server-sent events over `fetch`, because `EventSource` cannot send an Authorization header.
 * Parsing follows the HTML standard, section 9.2.6 "Interpreting an event stream".
 */

export interface ServerEvent {
  /** Last event id seen on this stream, this event's included. */
  id: string;
  event: string;
  data: string;
}

/** Takes text in pieces of any size, gives the events that are whole. */
export class EventStreamParser {
  /** Reconnection time asked for by the server, milliseconds. */
  retryMs: number | null = null;
  private rest = "";
  private first = true;
  private lastId: string;
  private event = "";
  private data: string[] = [];

  constructor(lastId = "") {
    this.lastId = lastId;
  }

  push(text: string): ServerEvent[] {
    let buffer = this.rest + text;
    if (this.first && buffer.length > 0) {
      this.first = false;
      if (buffer.startsWith("\uFEFF")) buffer = buffer.slice(1);
    }
    const found: ServerEvent[] = [];
    let start = 0;
    for (;;) {
      const end = buffer.slice(start).search(/[\r\n]/);
      if (end < 0) break;
      const at = start + end;
      // A carriage return at the very end may be half of a CRLF: wait for the next piece.
      if (buffer[at] === "\r" && at === buffer.length - 1) break;
      const event = this.line(buffer.slice(start, at));
      if (event !== null) found.push(event);
      start = at + (buffer[at] === "\r" && buffer[at + 1] === "\n" ? 2 : 1);
    }
    this.rest = buffer.slice(start);
    return found;
  }

  private line(line: string): ServerEvent | null {
    if (line === "") return this.dispatch();
    if (line.startsWith(":")) return null;
    const colon = line.indexOf(":");
    const field = colon < 0 ? line : line.slice(0, colon);
    const raw = colon < 0 ? "" : line.slice(colon + 1);
    const value = raw.startsWith(" ") ? raw.slice(1) : raw;
    if (field === "event") this.event = value;
    else if (field === "data") this.data.push(value);
    else if (field === "id" && !value.includes("\0")) this.lastId = value;
    else if (field === "retry" && /^\d+$/.test(value)) this.retryMs = Number(value);
    return null;
  }

  private dispatch(): ServerEvent | null {
    const event = this.event || "message";
    const data = this.data;
    this.event = "";
    this.data = [];
    return data.length === 0 ? null : { id: this.lastId, event, data: data.join("\n") };
  }
}
