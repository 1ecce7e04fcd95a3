/** Plans beside each other: one scale for all bars, what each differs in, and a job file with another plan. */

import type { EstimateView, PlanAnswer } from "../../api/queries";

export interface Entry {
  /** Null: the plan that the job file has itself. */
  place: number | null;
  estimate: EstimateView;
  /** The job as JSON with this plan in it. */
  spec: PlanAnswer["spec"];
}

/** The job's own plan first, then the best found, fastest first. */
export function entriesOf({ estimate, search, spec }: PlanAnswer): Entry[] {
  const own: Entry[] = estimate === null ? [] : [{ place: null, estimate, spec }];
  const best = search?.best ?? [];
  return [...own, ...best.map((found, i) => ({ place: i + 1, estimate: found, spec: withPlan(spec, found) }))];
}

function withPlan(spec: PlanAnswer["spec"], { parallelism, recompute: mode }: EstimateView): PlanAnswer["spec"] {
  const training = mapping(spec["training"]);
  const recompute = { ...mapping(training["recompute"]), mode, every: 1 };
  return { ...spec, parallelism, training: { ...training, recompute } };
}

function mapping(value: unknown): Record<string, unknown> {
  return typeof value === "object" && value !== null ? (value as Record<string, unknown>) : {};
}

export interface Scale {
  /** Longest step, seconds. */
  step: number;
  /** Largest memory, bytes; the limit included. */
  memory: number;
}

export function scaleOf(entries: readonly Entry[]): Scale {
  const memory = entries.flatMap(({ estimate }) => [estimate.memory_total_bytes, estimate.memory_limit_bytes]);
  return { step: Math.max(0, ...entries.map(({ estimate }) => estimate.step_s)), memory: Math.max(0, ...memory) };
}

/** Parts of a step and of a rank's memory, in the order in which they are drawn. */
export const SECONDS = ["forward", "backward", "recompute", "bubble", "communication", "optimizer"] as const;
export const MEMORY = ["parameters", "gradients", "optimizer", "activations", "buffers"] as const;

/** Known parts in their order, then others that a newer server may name; without what is nothing. */
export function partsOf(values: Readonly<Record<string, number>>, order: readonly string[]): [string, number][] {
  const names = [...order, ...Object.keys(values).filter((name) => !order.includes(name))];
  return names.flatMap((name) => ((values[name] ?? 0) > 0 ? [[name, values[name] ?? 0]] : []));
}

/** `1.62 times as fast`, against the job's own plan; null where there is nothing to say. */
export function against(own: EstimateView | null, { step_s: step }: EstimateView): string | null {
  if (own === null || step <= 0 || own.step_s <= 0) return null;
  const factor = own.step_s / step;
  if (Math.abs(factor - 1) < 0.005) return "as fast as the job's own";
  return factor > 1 ? `${factor.toFixed(2)} times as fast` : `${(1 / factor).toFixed(2)} times as slow`;
}

/** What a plan has besides its degrees: `8 micro-batches, 1f1b, recompute full`. */
export function settingsOf({ parallelism, recompute }: EstimateView): string {
  const { microbatches, schedule, virtual_stages: virtual, pp } = parallelism;
  const several = typeof microbatches === "number" && microbatches > 1;
  const pipeline = typeof pp === "number" && pp > 1;
  return [
    several ? `${microbatches} micro-batches` : null,
    pipeline ? String(schedule) : null,
    typeof virtual === "number" && virtual > 1 ? `${virtual} stages a rank` : null,
    recompute === "none" ? "no recompute" : `recompute ${recompute}`,
  ]
    .filter(Boolean)
    .join(", ");
}

const REASONS: Record<string, string> = {
  memory: "do not fit into memory",
  refused: "break a rule of the job or find no place on the fabric",
  bubble: "wait longest in the pipeline's bubble",
  communication: "wait longest for communication",
  recompute: "compute too much twice",
  compute: "compute longer",
  untried: "were not tried: of those before them none found a place",
};

/** Why plans are not among the best, most frequent first: `[3012, "do not fit into memory"]`. */
export function lostBy(lost: Readonly<Record<string, number>>): [number, string][] {
  return Object.entries(lost)
    .toSorted(([, a], [, b]) => b - a)
    .map(([reason, plans]) => [plans, REASONS[reason] ?? reason]);
}
