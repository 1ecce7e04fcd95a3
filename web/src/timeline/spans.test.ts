import { describe, expect, it } from "vitest";
import type { TimelineRank, TimelineSpan } from "../api/queries";
import { chunks, firstPlace, milliseconds, neighbour, sentenceOf, sums, worksOf } from "./spans";
import { laneAt, layOut, ticks, tooSmallForNumbers } from "./layout";

// GPipe, two ranks, two micro-batches, forward 10 ms and backward 20 ms (Huang et al. 2019, figure 2).
const FIRST: TimelineSpan[] = [
  ["forward", 0, 0, 0, 10_000],
  ["forward", 0, 1, 10_000, 20_000],
  ["backward", 0, 0, 50_000, 70_000],
  ["backward", 0, 1, 70_000, 90_000],
];
const SECOND: TimelineSpan[] = [
  ["forward", 1, 0, 10_000, 20_000],
  ["forward", 1, 1, 20_000, 30_000],
  ["backward", 1, 0, 30_000, 50_000],
  ["backward", 1, 1, 50_000, 70_000],
];

function rankOf(rank: number, spans: TimelineSpan[]): TimelineRank {
  const busy = { forward: 20_000, backward: 40_000 };
  const start_us = spans[0]?.[3] ?? 0;
  const end_us = spans.at(-1)?.[4] ?? 0;
  return { rank, spans, start_us, end_us, busy_us: busy, spans_left_out: 0, totals: { steps: 1, busy_us: busy, own_us: end_us - start_us } };
}

const RANKS = [rankOf(0, FIRST), rankOf(4, SECOND)];

describe("sums", () => {
  it("tells idleness before, between and after", () => {
    expect(sums(rankOf(0, FIRST), 90_000)).toEqual({ busy: 60_000, before: 0, between: 30_000, after: 0 });
    expect(sums(rankOf(4, SECOND), 90_000)).toEqual({ busy: 60_000, before: 10_000, between: 0, after: 20_000 });
  });
  it("names the works that occur", () => {
    expect(worksOf(RANKS)).toEqual(["forward", "backward"]);
  });
  it("numbers the stages of each rank", () => {
    const ring = rankOf(0, [["forward", 2, 0, 0, 1], ["forward", 0, 0, 1, 2]]);
    expect([...chunks([ring])]).toEqual([[0, 0], [2, 1]]);
  });
});

describe("moving by keys", () => {
  it("stays on the rank and stops at its ends", () => {
    expect(neighbour(RANKS, { lane: 0, span: 1 }, "right")).toEqual({ lane: 0, span: 2 });
    expect(neighbour(RANKS, { lane: 0, span: 0 }, "left")).toEqual({ lane: 0, span: 0 });
    expect(neighbour(RANKS, { lane: 0, span: 0 }, "last")).toEqual({ lane: 0, span: 3 });
  });
  it("goes to what the next rank did at that time", () => {
    expect(neighbour(RANKS, { lane: 0, span: 2 }, "down")).toEqual({ lane: 1, span: 3 });
    expect(neighbour(RANKS, { lane: 1, span: 0 }, "up")).toEqual({ lane: 0, span: 1 });
    expect(neighbour(RANKS, { lane: 1, span: 0 }, "down")).toEqual({ lane: 1, span: 0 });
  });
  it("passes over ranks that are drawn without their work", () => {
    const ranks = [rankOf(0, FIRST), rankOf(1, []), rankOf(2, SECOND)];
    expect(neighbour(ranks, { lane: 0, span: 3 }, "down")).toEqual({ lane: 2, span: 3 });
    expect(firstPlace([rankOf(1, []), rankOf(2, SECOND)])).toEqual({ lane: 1, span: 0 });
    expect(firstPlace([rankOf(1, [])])).toBeNull();
  });
});

describe("words", () => {
  it("are whole sentences", () => {
    expect(sentenceOf(rankOf(4, SECOND), SECOND[2] ?? FIRST[0]!)).toBe(
      "Rank 4, stage 1: backward of micro-batch 0, 20 ms, from 30 ms to 50 ms",
    );
    expect([420, 50_220, 1_650_400].map(milliseconds)).toEqual(["0.42 ms", "50.2 ms", "1,650 ms"]);
  });
});

describe("the drawing", () => {
  it("is as wide as the page, and wider when pieces would vanish", () => {
    expect(layOut(RANKS, 600).width).toBe(600);
    const many = Array.from({ length: 1000 }, (_, i): TimelineSpan => ["forward", 0, i, i, i + 1]);
    expect(layOut([rankOf(0, many)], 600).width).toBe(56 + 1000 * 6);
    expect(layOut([rankOf(0, [...many, ...many, ...many])], 600).width).toBe(8_000);
  });
  it("finds the piece under the pointer", () => {
    const drawing = layOut(RANKS, 956); // 900 pixels for 90 ms
    expect(laneAt(drawing, RANKS, 90_000, 56 + 255, 5)).toBeNull();
    expect(laneAt(drawing, RANKS, 90_000, 56 + 255, drawing.lane + 5)).toEqual({ lane: 1, span: 1 });
    expect(laneAt(drawing, RANKS, 90_000, 10, 5)).toBeNull();
    expect(laneAt(drawing, RANKS, 90_000, 56 + 255, 10_000)).toBeNull();
  });
  it("makes lanes low when there are many", () => {
    const many = Array.from({ length: 200 }, (_, i) => rankOf(i, []));
    expect(layOut(many, 600).height).toBeLessThan(2_000);
    expect(tooSmallForNumbers(layOut(many, 600))).toBe(true);
    expect(tooSmallForNumbers(layOut(RANKS, 600))).toBe(false);
  });
  it("has round ticks", () => {
    expect(ticks(90_000, 900)).toEqual([0, 10_000, 20_000, 30_000, 40_000, 50_000, 60_000, 70_000, 80_000, 90_000]);
    expect(ticks(90_000, 300)).toEqual([0, 50_000]);
    expect(ticks(0, 300)).toEqual([0]);
  });
});
