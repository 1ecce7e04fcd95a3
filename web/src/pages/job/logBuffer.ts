/** The part of one rank's log that the page holds: a stretch of the file, extended at both ends. */

import type { LogView } from "../../api/queries";

export interface LogBuffer {
  attempt: number;
  text: string;
  /** Bytes in the file: first held, first not held, all. */
  start: number;
  end: number;
  size: number;
  live: boolean;
  /** True when old text was dropped to keep the page light. */
  dropped: boolean;
}

/** Characters kept; older text is dropped and can be downloaded. */
export const MAX_HELD = 4_000_000;

/** The buffer with a newer answer behind it. A new attempt, or a file that has shrunk, starts afresh. */
export function append(buffer: LogBuffer | null, view: LogView): LogBuffer {
  const fresh = buffer === null || view.attempt !== buffer.attempt || view.size < buffer.end || view.offset !== buffer.end;
  const text = fresh ? view.text : buffer.text + view.text;
  const cut = text.length > MAX_HELD ? text.indexOf("\n", text.length - MAX_HELD) + 1 : 0;
  return {
    attempt: view.attempt,
    text: cut > 0 ? text.slice(cut) : text,
    start: fresh ? view.offset : buffer.start,
    end: view.next_offset,
    size: view.size,
    live: view.live,
    dropped: (!fresh && buffer.dropped) || cut > 0,
  };
}

/** The buffer with an earlier part before it. */
export function prepend(buffer: LogBuffer, view: LogView): LogBuffer {
  if (view.attempt !== buffer.attempt || view.next_offset !== buffer.start) return buffer;
  return { ...buffer, text: view.text + buffer.text, start: view.offset };
}

/** Lines without the empty one behind a last line feed; carriage returns of progress bars end a line too. */
export function linesOf(text: string): string[] {
  const lines = text.split(/\r\n|\n|\r/);
  if (lines.at(-1) === "") lines.pop();
  return lines;
}

/** Indices of the lines that contain `needle`, whatever the case. */
export function matches(lines: readonly string[], needle: string): number[] {
  const wanted = needle.toLowerCase();
  if (wanted === "") return [];
  return lines.flatMap((line, i) => (line.toLowerCase().includes(wanted) ? [i] : []));
}
