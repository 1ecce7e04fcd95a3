/** Classes of GPU time as a waterfall: from what was held, class by class, down to what was useful. */

import type { components } from "../api/types";

type Schemas = components["schemas"];
export type Spent = Schemas["Spent"];
export type Ledger = Pick<
  Schemas["ClusterGoodput"],
  "gpu_seconds" | "unmeasured_gpu_seconds" | "held_gpu_seconds" | "total_gpu_seconds" | "goodput" | "ettr"
>;

/** `own`: bringing up and spare parts. `fault`: what a fault cost. `wait`: inside steps. */
export type Tone = "own" | "fault" | "wait" | "useful" | "missing";

interface ClassWords {
  label: string;
  meaning: string;
  tone: Tone;
}

/** In the order in which a waterfall takes them away. */
export const CLASSES: Record<Spent, ClassWords> = {
  start: {
    label: "Start and end",
    meaning: "Bringing the job up, from a placement to its first step, and taking it down until its slots are free.",
    tone: "own",
  },
  "idle-spare": { label: "Idle spares", meaning: "Spare GPUs that were held and did nothing.", tone: "own" },
  repair: {
    label: "Repair",
    meaning: "From the moment a fault's cause was settled until the first step after it began.",
    tone: "fault",
  },
  detection: {
    label: "Detection",
    meaning: "From where the broken step should have ended until the fault was told and its cause settled.",
    tone: "fault",
  },
  "lost-work": {
    label: "Lost work",
    meaning: "Steps that nothing is left of: trained again from a checkpoint before them, not saved before the job failed, or broken off by a fault.",
    tone: "fault",
  },
  "checkpoint-stall": {
    label: "Checkpoint stall",
    meaning: "Steps held up by a save, and waiting for the last save of an attempt.",
    tone: "wait",
  },
  "data-wait": { label: "Data wait", meaning: "Waiting for the next batch.", tone: "wait" },
  bubble: { label: "Pipeline bubble", meaning: "Waiting along the pipeline.", tone: "wait" },
  "exposed-communication": {
    label: "Exposed communication",
    meaning: "Waiting for other ranks, pipeline apart.",
    tone: "wait",
  },
  "useful-compute": {
    label: "Useful compute",
    meaning: "Computing of steps that count, and evaluations: what is left of a step without its waits.",
    tone: "useful",
  },
  degraded: {
    label: "Degraded",
    meaning: "GPUs that were asked for and not there while the job ran on with fewer. Not held.",
    tone: "missing",
  },
  queued: { label: "Queued", meaning: "GPUs that were asked for, while the job held none. Not held.", tone: "missing" },
};

export interface Fall {
  key: Spent | "held";
  label: string;
  meaning: string;
  tone: Tone;
  /** GPU-seconds; null when nobody measured it. */
  seconds: number | null;
  /** Left end of the bar and its length, parts of what was held; none for what was not held. */
  bar: { from: number; length: number } | null;
  /** GPU-seconds of steps in which it was not measured. */
  unmeasured: number;
}

/** Rows from what was held to what was useful, then what was not held; classes without time are left out. */
export function waterfall(ledger: Ledger): Fall[] {
  const held = ledger.held_gpu_seconds;
  const rows: Fall[] = [
    {
      key: "held",
      label: "Held",
      meaning: "All time of GPUs that were placed and not free again.",
      tone: "own",
      seconds: held,
      bar: held > 0 ? { from: 0, length: 1 } : null,
      unmeasured: 0,
    },
  ];
  let left = held;
  for (const key of Object.keys(CLASSES) as Spent[]) {
    const words = CLASSES[key];
    const seconds = ledger.gpu_seconds[key] ?? null;
    const unmeasured = ledger.unmeasured_gpu_seconds[key] ?? 0;
    if (seconds === 0 && unmeasured === 0 && key !== "useful-compute") continue;
    const isHeld = words.tone !== "missing";
    const length = held > 0 && isHeld ? (seconds ?? 0) / held : 0;
    if (isHeld) left -= seconds ?? 0;
    const bar = isHeld && held > 0 ? { from: Math.max(0, left / held), length } : null;
    rows.push({ key, ...words, seconds, bar, unmeasured });
  }
  return rows;
}

/** GPU time: `42.1 GPU-s`, `3.5 GPU-h`; parts of a whole have the whole's unit. */
export function gpuTime(seconds: number, whole = seconds): string {
  const [value, unit] = whole < 3_600 ? [seconds, "GPU-s"] : [seconds / 3_600, "GPU-h"];
  const digits = value >= 100 ? 0 : value >= 10 ? 1 : 2;
  const precision = value < 0.1 ? { maximumSignificantDigits: 2 } : { maximumFractionDigits: digits };
  return `${value.toLocaleString("en-US", precision)} ${unit}`;
}
