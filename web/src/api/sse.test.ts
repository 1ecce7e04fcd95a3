import { describe, expect, it } from "vitest";
import { EventStreamParser } from "./sse";

describe("EventStreamParser", () => {
  it("gives an event at the blank line, with its id and type", () => {
    const parser = new EventStreamParser();
    expect(parser.push("retry: 2000\n: atoll\n\nid: 7\nevent: metric\ndata: {\"a\":1}\n\n")).toEqual([
      { id: "7", event: "metric", data: '{"a":1}' },
    ]);
    expect(parser.retryMs).toBe(2000);
  });

  it("gives the same events however the text is cut", () => {
    const text = "\uFEFFid: 1\r\ndata: one\r\ndata: two\r\n\r\n:comment\r\rdata\n\ndata:  x\nid: 2\n\n";
    const whole = new EventStreamParser().push(text);
    expect(whole).toEqual([
      { id: "1", event: "message", data: "one\ntwo" },
      { id: "1", event: "message", data: "" },
      { id: "2", event: "message", data: " x" },
    ]);
    for (let cut = 0; cut <= text.length; cut += 1) {
      const parser = new EventStreamParser();
      expect([...parser.push(text.slice(0, cut)), ...parser.push(text.slice(cut))]).toEqual(whole);
    }
  });

  it("holds back an event that is not ended and ignores ids with NUL", () => {
    const parser = new EventStreamParser("41");
    expect(parser.push("id: 4\u00002\ndata: half")).toEqual([]);
    expect(parser.push("\n\n")).toEqual([{ id: "41", event: "message", data: "half" }]);
  });
});
