/** Slots of all nodes in one list, and the jobs that hold them. */

import type { NodeView } from "../../api/queries";
import type { Place } from "../../placement/tree";

export interface PlacedSlot extends Place {
  spine: string | null;
  core: string | null;
  alive: boolean;
  schedulable: boolean;
  jobId: string | null;
  jobName: string | null;
  rank: number | null;
}

export function slotsOf(nodes: readonly NodeView[]): PlacedSlot[] {
  return nodes.flatMap((node) =>
    node.slots.map((slot) => ({
      node: node.name,
      index: slot.index,
      island: node.island,
      leaf: node.leaf,
      spine: node.spine,
      core: node.core,
      alive: node.alive,
      schedulable: node.schedulable,
      jobId: slot.job_id,
      jobName: slot.job_name,
      rank: slot.rank,
    })),
  );
}

export function usable(slot: Pick<PlacedSlot, "alive" | "schedulable">): boolean {
  return slot.alive && slot.schedulable;
}

export interface Holder {
  jobId: string;
  name: string;
  slots: number;
}

/** Jobs that hold slots, oldest first: ids sort by time, so a job keeps its colour while others come. */
export function holdersOf(slots: readonly PlacedSlot[]): Holder[] {
  const found = new Map<string, Holder>();
  for (const { jobId, jobName } of slots) {
    if (jobId === null) continue;
    const holder = found.get(jobId);
    if (holder === undefined) found.set(jobId, { jobId, name: jobName ?? jobId, slots: 1 });
    else holder.slots += 1;
  }
  return [...found.values()].toSorted((a, b) => (a.jobId < b.jobId ? -1 : 1));
}
