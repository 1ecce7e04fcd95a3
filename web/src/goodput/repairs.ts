/** Faults and what became of them, as parts of a line of time. */

import type { components } from "../api/types";
import { exactly } from "../format/time";

export type Repair = components["schemas"]["RepairView"];

export const PARTS = ["unnoticed", "settling", "repair", "first-step"] as const;
export type PartName = (typeof PARTS)[number];

export const PART_WORDS: Record<PartName, { label: string; meaning: string }> = {
  unnoticed: { label: "unnoticed", meaning: "from the last finished step until the fault was told" },
  settling: { label: "settling", meaning: "until its cause was known and no rank of the attempt lived" },
  repair: { label: "repair", meaning: "until all ranks were ready again" },
  "first-step": { label: "first step", meaning: "until a step was finished again" },
};

export interface RepairPart {
  name: PartName;
  seconds: number;
}

/** The parts that are over, in their order. */
export function partsOf(repair: Repair): RepairPart[] {
  return PARTS.flatMap((name) => {
    const seconds = repair.seconds[name];
    return seconds === undefined ? [] : [{ name, seconds }];
  });
}

export function totalOf(repair: Repair): number {
  return partsOf(repair).reduce((sum, { seconds }) => sum + seconds, 0);
}

/** What came of it: the rung and how long it took, or how far it has come. */
export function outcomeOf(repair: Repair): string {
  const rung = repair.rung === null ? "" : repair.rung.replaceAll("-", " ");
  if (repair.stepped_at !== null) return `${rung || "repaired"}, ${exactly(totalOf(repair))} from step to step`;
  if (repair.given_up) return "not repaired: the job ended";
  if (repair.trained_at !== null) return `${rung || "repaired"}, in its first step`;
  return rung === "" ? "repair under way" : `${rung}, under way`;
}
