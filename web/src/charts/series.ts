/** Steps of a job as columns for a chart. A restart goes back to a checkpoint: what was lost is cut off. */

import type { MetricView, StepCost } from "../api/queries";

export interface Series {
  steps: number[];
  /** Null where the loss was not finite. */
  loss: (number | null)[];
  tokensPerSecond: (number | null)[];
  stepSeconds: (number | null)[];
  /** Null where the rank program measured nothing. */
  costs: (StepCost | null)[];
  /** Steps reached when a restart threw the job back, oldest first. */
  setbacks: number[];
  newest: MetricView | null;
}

export const NO_STEPS: Series = {
  steps: [],
  loss: [],
  tokensPerSecond: [],
  stepSeconds: [],
  costs: [],
  setbacks: [],
  newest: null,
};

/** First index whose step is not below `step`. Steps ascend. */
function lowerBound(steps: number[], step: number): number {
  let low = 0;
  let high = steps.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((steps[middle] ?? Infinity) < step) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** The series with `points` behind it; a step that comes again replaces everything from there on. */
export function appendPoints(series: Series, points: MetricView[]): Series {
  const next: Series = {
    steps: [...series.steps],
    loss: [...series.loss],
    tokensPerSecond: [...series.tokensPerSecond],
    stepSeconds: [...series.stepSeconds],
    costs: [...series.costs],
    setbacks: [...series.setbacks],
    newest: points.at(-1) ?? series.newest,
  };
  for (const point of points) {
    const last = next.steps.at(-1);
    if (last !== undefined && point.step <= last) {
      const keep = lowerBound(next.steps, point.step);
      next.setbacks.push(last);
      next.steps.length = keep;
      next.loss.length = keep;
      next.tokensPerSecond.length = keep;
      next.stepSeconds.length = keep;
      next.costs.length = keep;
    }
    next.steps.push(point.step);
    next.loss.push(point.loss);
    next.tokensPerSecond.push(point.tokens_per_s);
    next.stepSeconds.push(point.step_time_s);
    next.costs.push(point.cost);
  }
  return next;
}

/** Median of the known values; null when there is none. */
export function median(values: readonly (number | null)[]): number | null {
  const known = values.filter((value) => value !== null).toSorted((a, b) => a - b);
  if (known.length === 0) return null;
  const middle = known.length >> 1;
  const upper = known[middle] ?? 0;
  return known.length % 2 === 1 ? upper : (upper + (known[middle - 1] ?? 0)) / 2;
}
