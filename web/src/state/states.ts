/** States of a job and reasons, in words for people. */

import type { JobState, JobSummary, Reason } from "../api/queries";

export const STATES: readonly JobState[] = [
  "queued",
  "starting",
  "running",
  "recovering",
  "stopping",
  "succeeded",
  "failed",
  "cancelled",
];

/** False for a state that a newer version of the control plane wrote: it is shown as it is called. */
export function isKnown(state: string): state is JobState {
  return (STATES as readonly string[]).includes(state);
}

export const REASONS: Record<Reason, string> = {
  none: "",
  "waiting-for-controller": "Waiting for the controller to look at it.",
  "no-room": "Waiting for free slots.",
  "never-fits": "It does not fit on this cluster, even when all of it is free.",
  "over-quota": "Its project holds as many slots as it may.",
  reserved: "Free slots are kept for a job that is ahead of it.",
  preempted: "It made room for a job of higher priority; it goes on from its checkpoint.",
  "time-limit": "Its time limit is reached.",
  "cluster-unreachable": "The cluster cannot be reached.",
  "rank-died": "A rank died; ranks start again from the last checkpoint.",
  "node-lost": "A node was lost.",
  hung: "No rank got on; ranks start again from the last checkpoint.",
  "supervisor-lost": "Its supervisor was lost.",
  "placement-not-certified": "Ranks do not sit where they were placed.",
  "start-timed-out": "Ranks did not start in time.",
  "retry-budget-spent": "It died more often than its recovery section allows.",
  "no-progress": "It died at the same step again and again.",
  "user-error": "The training program raised an error.",
  "cancelled-by-user": "Cancelled by a user.",
  completed: "All steps are done.",
};

/** Why the job is in its state: the server's sentence, else the words for its reason. */
export function reasonSentence(job: Pick<JobSummary, "message" | "reason">): string {
  return job.message.trim() || ((REASONS as Record<string, string>)[job.reason] ?? "");
}

/** The first line; failures carry a traceback behind it. */
export function firstLine(text: string): string {
  return text.split("\n", 1)[0] ?? "";
}
