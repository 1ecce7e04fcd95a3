/** Who holds which slot, and which slots are out of use: what changes while the fabric stays the same. */

import type { NodeView } from "../api/queries";
import type { Domain, Tree } from "./tree";

export interface Holder {
  jobId: string;
  name: string;
  slots: number;
}

export type Condition = "alive" | "takes no work" | "gone";
export const CONDITIONS: readonly Condition[] = ["alive", "takes no work", "gone"];

export interface Occupancy {
  /** Jobs that hold slots, oldest first: ids sort by time, so a job keeps its colour while others come. */
  holders: Holder[];
  /** By number of the slot: index into `holders`, or -1. */
  holder: Int32Array;
  /** By number of the slot: rank in its job, or -1. */
  rank: Int32Array;
  /** By number of the node. */
  views: (NodeView | undefined)[];
  /** By number of the slot: index into `CONDITIONS`. */
  use: Uint8Array;
}

export function conditionOf({ alive, schedulable }: Pick<NodeView, "alive" | "schedulable">): Condition {
  if (!alive) return "gone";
  return schedulable ? "alive" : "takes no work";
}

/** Jobs that hold slots of `nodes`, oldest first. */
export function holdersOf(nodes: readonly NodeView[]): Holder[] {
  const found = new Map<string, Holder>();
  for (const { slots } of nodes) {
    for (const { job_id: jobId, job_name: name } of slots) {
      if (jobId === null) continue;
      const holder = found.get(jobId);
      if (holder === undefined) found.set(jobId, { jobId, name: name ?? jobId, slots: 1 });
      else holder.slots += 1;
    }
  }
  return [...found.values()].toSorted((a, b) => (a.jobId < b.jobId ? -1 : 1));
}

/** `nodes` are those that `tree` has grown from, or the same ones later. */
export function occupancyOf(tree: Tree, nodes: readonly NodeView[]): Occupancy {
  const byName = new Map(nodes.map((node) => [node.name, node]));
  const holders = holdersOf(nodes);
  const numbers = new Map(holders.map(({ jobId }, i) => [jobId, i]));
  const views = tree.nodes.map(({ name }) => byName.get(name ?? ""));
  const holder = new Int32Array(tree.slots.length).fill(-1);
  const rank = new Int32Array(tree.slots.length).fill(-1);
  const use = new Uint8Array(tree.slots.length);
  tree.slots.forEach((slot, i) => {
    const view = views[slot.firstNode];
    const held = view?.slots[indexOf(slot)];
    if (view === undefined || held === undefined) return;
    holder[i] = held.job_id === null ? -1 : (numbers.get(held.job_id) ?? -1);
    rank[i] = held.rank ?? -1;
    use[i] = CONDITIONS.indexOf(conditionOf(view));
  });
  return { holders, holder, rank, views, use };
}

/** Index of a slot in its node. */
export function indexOf({ name }: Domain): number {
  return Number(name?.slice(name.lastIndexOf("/") + 1));
}

export interface Counts {
  slots: number;
  held: number;
  free: number;
  /** Not held, and on a node that takes no work or is gone. */
  out: number;
  /** Index into `holders` and slots held in the domain, most first. */
  jobs: [number, number][];
}

export function countsOf({ first, end }: Domain, { holder, use }: Occupancy): Counts {
  const jobs = new Map<number, number>();
  let held = 0;
  let out = 0;
  for (let i = first; i < end; i += 1) {
    const job = holder[i] ?? -1;
    if (job >= 0) {
      held += 1;
      jobs.set(job, (jobs.get(job) ?? 0) + 1);
    } else if (use[i] !== 0) out += 1;
  }
  const slots = end - first;
  return { slots, held, free: slots - held - out, out, jobs: [...jobs].toSorted(([, a], [, b]) => b - a) };
}
