import { describe, expect, it } from "vitest";
import type { LogView } from "../../api/queries";
import { append, linesOf, matches, MAX_HELD, prepend } from "./logBuffer";

function view(text: string, offset: number, size: number, attempt = 1): LogView {
  return { attempt, rank: 0, offset, text, next_offset: offset + text.length, size, live: true };
}

describe("log buffer", () => {
  it("joins what follows and what comes before", () => {
    const tail = append(null, view("two\n", 4, 8));
    const grown = append(tail, view("three\n", 8, 14));
    const whole = prepend(grown, view("one\n", 0, 14));
    expect(whole).toMatchObject({ text: "one\ntwo\nthree\n", start: 0, end: 14, size: 14 });
  });

  it("begins again with another attempt or a gap", () => {
    const first = append(null, view("old\n", 0, 4));
    expect(append(first, view("new\n", 0, 4, 2)).text).toBe("new\n");
    expect(append(first, view("far\n", 90, 94)).text).toBe("far\n");
    expect(prepend(first, view("x", 50, 60))).toBe(first);
  });

  it("drops whole old lines beyond its limit and says so", () => {
    const line = `${"x".repeat(999)}\n`;
    const first = append(null, view(line.repeat(3_900), 0, 3_900_000));
    const second = append(first, view(line.repeat(200), 3_900_000, 4_100_000));
    expect(second.text.length).toBeLessThanOrEqual(MAX_HELD);
    expect(second.text.startsWith("xxx")).toBe(true);
    expect(second.text.length % 1000).toBe(0);
    expect(second.dropped).toBe(true);
  });

  it("splits lines at every kind of ending and finds words whatever the case", () => {
    const lines = linesOf("Loss 3\r\n10%\r20%\nlast loss\n");
    expect(lines).toEqual(["Loss 3", "10%", "20%", "last loss"]);
    expect(matches(lines, "LOSS")).toEqual([0, 3]);
    expect(matches(lines, "")).toEqual([]);
  });
});
