/** What steps cost, as figures to show: means over the newest steps, and the newest loads of experts. */

import type { EventView, StepCost } from "../../../api/queries";

/** Steps whose mean stands for what a step costs now. */
export const COST_STEPS = 20;

export interface Part {
  key: string;
  label: string;
  value: number;
  /** Time spent waiting for other ranks, not working. */
  waiting: boolean;
}

const AXES: Record<string, string> = {
  tp: "tensor (tp)",
  cp: "context (cp)",
  pp: "pipeline (pp)",
  dp: "data (dp)",
  ep: "experts (ep)",
  shard: "ZeRO shards",
  control: "norm, loss and loads",
};

const PHASES: Record<string, string> = {
  data: "data",
  forward: "forward",
  backward: "backward",
  optimizer: "gradients and optimizer",
  checkpoint: "checkpoint",
  evaluation: "evaluation",
  other: "other",
};

type Table = "sent_bytes" | "phases_s" | "exposed_s";

/** Mean of each entry over the newest steps that have the table; null when none has. */
function mean(costs: readonly (StepCost | null)[], table: Table): Map<string, number> | null {
  const known = costs
    .slice(-COST_STEPS)
    .flatMap((cost) => (cost?.[table] == null ? [] : [cost[table]]));
  if (known.length === 0) return null;
  const sums = new Map<string, number>();
  for (const entries of known) {
    for (const [key, value] of Object.entries(entries)) sums.set(key, (sums.get(key) ?? 0) + value / known.length);
  }
  return sums;
}

function parts(sums: Map<string, number> | null, labels: Record<string, string>, waiting: boolean): Part[] {
  if (sums === null) return [];
  return Object.entries(labels).flatMap(([key, label]) => {
    const value = sums.get(key) ?? 0;
    return value > 0 ? [{ key: waiting ? `wait-${key}` : key, label: waiting ? `waiting: ${label}` : label, value, waiting }] : [];
  });
}

/** Bytes that a rank sends in a step, by axis; null when steps say nothing of it. */
export function bytesByAxis(costs: readonly (StepCost | null)[]): Part[] | null {
  const sums = mean(costs, "sent_bytes");
  return sums === null ? null : parts(sums, AXES, false);
}

/** Seconds of a step of rank 0: work by phase, then waiting by axis; null when steps say nothing of it. */
export function secondsOfStep(costs: readonly (StepCost | null)[]): Part[] | null {
  const phases = mean(costs, "phases_s");
  if (phases === null) return null;
  return [...parts(phases, PHASES, false), ...parts(mean(costs, "exposed_s"), AXES, true)];
}

/** Waiting of a step for other ranks, all axes together. */
export function waited(cost: StepCost | null): number | null {
  return cost?.exposed_s == null ? null : Object.values(cost.exposed_s).reduce((sum, value) => sum + value, 0);
}

export function total(found: readonly Part[]): number {
  return found.reduce((sum, { value }) => sum + value, 0);
}

export interface LayerLoad {
  layer: number;
  assigned: number[];
  dropped: number[];
}

export interface ExpertLoads {
  step: number;
  layers: LayerLoad[];
  /** Layers with experts in the model; more than are listed when there are many. */
  layersWithExperts: number;
}

/** The newest loads in a job's history; null when none was told. */
export function newestLoads(events: readonly EventView[]): ExpertLoads | null {
  const told = events.findLast(({ kind }) => kind === "expert-load")?.data;
  if (told === undefined || typeof told["step"] !== "number" || !Array.isArray(told["layers"])) return null;
  const layers = told["layers"].flatMap((entry: unknown) => (isLayerLoad(entry) ? [entry] : []));
  if (layers.length === 0) return null;
  const all = told["layers_with_experts"];
  return { step: told["step"], layers, layersWithExperts: typeof all === "number" ? all : layers.length };
}

function isLayerLoad(entry: unknown): entry is LayerLoad {
  if (typeof entry !== "object" || entry === null) return false;
  const { layer, assigned, dropped } = entry as Record<string, unknown>;
  return typeof layer === "number" && areNumbers(assigned) && areNumbers(dropped) && assigned.length === dropped.length;
}

function areNumbers(values: unknown): values is number[] {
  return Array.isArray(values) && values.length > 0 && values.every((value) => typeof value === "number");
}

/** How many times its even share the fullest expert has, and what share of all assignments was dropped. */
export function imbalance({ assigned, dropped }: LayerLoad): { fullest: number; dropped: number } {
  const sum = assigned.reduce((a, b) => a + b, 0);
  if (sum === 0) return { fullest: 0, dropped: 0 };
  return {
    fullest: (assigned.reduce((a, b) => Math.max(a, b), 0) * assigned.length) / sum,
    dropped: dropped.reduce((a, b) => a + b, 0) / sum,
  };
}
