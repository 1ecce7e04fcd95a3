import { expect, it } from "vitest";
import type { MetricView } from "../api/queries";
import { appendPoints, median, NO_STEPS } from "./series";

function point(id: number, step: number, loss: number | null, attempt = 1): MetricView {
  return {
    id,
    step,
    loss,
    attempt,
    at: "2026-11-30T00:00:00Z",
    grad_norm: 1,
    learning_rate: 1e-3,
    tokens: 10,
    step_time_s: 0.5,
    tokens_per_s: 20,
    cost: null,
  };
}

it("replaces what a restart trained again, and remembers where it was thrown back", () => {
  const first = appendPoints(NO_STEPS, [point(1, 1, 5), point(2, 2, 4), point(3, 3, 3)]);
  const second = appendPoints(first, [point(4, 2, 4.5, 2), point(5, 3, null, 2)]);
  expect(second.steps).toEqual([1, 2, 3]);
  expect(second.loss).toEqual([5, 4.5, null]);
  expect(second.tokensPerSecond).toHaveLength(3);
  expect(second.costs).toHaveLength(3);
  expect(second.setbacks).toEqual([3]);
  expect(second.newest?.id).toBe(5);
  expect(first.loss).toEqual([5, 4, 3]); // the value before is not touched
});

it("takes the median of what is known", () => {
  expect(median([3, null, 1, 2])).toBe(2);
  expect(median([4, 1])).toBe(2.5);
  expect(median([null])).toBeNull();
});
