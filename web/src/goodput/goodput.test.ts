import { expect, it } from "vitest";
import { CLASSES, gpuTime, type Ledger, type Spent, waterfall } from "./classes";
import { outcomeOf, partsOf, type Repair, totalOf } from "./repairs";

function ledger(some: Partial<Record<Spent, number | null>>, unmeasured: Partial<Record<Spent, number>> = {}): Ledger {
  const seconds = { ...Object.fromEntries(Object.keys(CLASSES).map((key) => [key, 0])), ...some } as Record<Spent, number | null>;
  const sum = (keys: string[]) => keys.reduce((all, key) => all + (seconds[key as Spent] ?? 0), 0);
  const held = sum(Object.keys(CLASSES).filter((key) => key !== "queued" && key !== "degraded"));
  return {
    gpu_seconds: seconds,
    unmeasured_gpu_seconds: unmeasured as Record<string, number>,
    held_gpu_seconds: held,
    total_gpu_seconds: sum(Object.keys(CLASSES)),
    goodput: 0,
    ettr: 0,
  };
}

it("falls from what was held to what was useful", () => {
  const rows = waterfall(ledger({ start: 20, bubble: 30, "useful-compute": 50, queued: 7 }));
  expect(rows.map(({ key }) => key)).toEqual(["held", "start", "bubble", "useful-compute", "queued"]);
  expect(rows.map(({ bar }) => bar?.from)).toEqual([0, 0.8, 0.5, 0, undefined]);
  expect(rows.map(({ bar }) => bar?.length)).toEqual([1, 0.2, 0.3, 0.5, undefined]);
});

it("tells what nobody measured from what was nothing", () => {
  const rows = waterfall(ledger({ bubble: null, "useful-compute": 50 }, { bubble: 50 }));
  expect(rows.find(({ key }) => key === "bubble")).toMatchObject({ seconds: null, unmeasured: 50 });
  expect(rows.some(({ key }) => key === "data-wait")).toBe(false);
});

it("shows a job that never held a GPU", () => {
  const rows = waterfall(ledger({ queued: 9 }));
  expect(rows.map(({ key, bar }) => [key, bar])).toEqual([["held", null], ["useful-compute", null], ["queued", null]]);
});

it("writes GPU time in the unit that fits", () => {
  expect([0.25, 42.14, 3599, 7200, 1e7].map((seconds) => gpuTime(seconds))).toEqual([
    "0.25 GPU-s",
    "42.1 GPU-s",
    "3,599 GPU-s",
    "2 GPU-h",
    "2,778 GPU-h",
  ]);
  expect([360, 4.5, 0].map((seconds) => gpuTime(seconds, 36_000))).toEqual(["0.1 GPU-h", "0.0013 GPU-h", "0 GPU-h"]);
});

const REPAIR: Repair = {
  fault: "rank-died",
  message: "Rank 5 was ended.",
  attempt: 1,
  step: 46,
  rung: "in-place",
  last_step_at: "2026-12-01T10:00:00Z",
  told_at: "2026-12-01T10:00:01Z",
  settled_at: "2026-12-01T10:00:03Z",
  trained_at: "2026-12-01T10:00:06Z",
  stepped_at: "2026-12-01T10:00:06.5Z",
  given_up: false,
  seconds: { unnoticed: 1, settling: 2, repair: 3, "first-step": 0.5 },
};

it("tells a repair from step to step", () => {
  expect(partsOf(REPAIR).map(({ name }) => name)).toEqual(["unnoticed", "settling", "repair", "first-step"]);
  expect(totalOf(REPAIR)).toBe(6.5);
  expect(outcomeOf(REPAIR)).toBe("in place, 6.5 s from step to step");
});

it("tells how far a repair has come", () => {
  const open = { ...REPAIR, stepped_at: null };
  expect(outcomeOf(open)).toBe("in place, in its first step");
  expect(outcomeOf({ ...open, trained_at: null })).toBe("in place, under way");
  expect(outcomeOf({ ...open, trained_at: null, rung: null })).toBe("repair under way");
  expect(outcomeOf({ ...open, trained_at: null, given_up: true })).toBe("not repaired: the job ended");
});
