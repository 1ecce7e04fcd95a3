import type { TimelineRank, TimelineSpan, TimelineView, Work } from "../api/queries";

/** Works in the order in which legends and tables name them. */
export const WORKS: readonly Work[] = ["forward", "backward", "backward-input", "backward-weight"];

export const WORK_NAMES: Record<Work, string> = {
  forward: "forward",
  backward: "backward",
  "backward-input": "backward, to the inputs",
  "backward-weight": "backward, to the weights",
};

/** Works that occur, in the order of `WORKS`. */
export function worksOf(ranks: readonly TimelineRank[]): Work[] {
  return WORKS.filter((work) => ranks.some((rank) => (rank.busy_us[work] ?? 0) > 0));
}

export interface RankSums {
  busy: number;
  /** Idle before the rank's first work, between its works, and after its last; microseconds. */
  before: number;
  between: number;
  after: number;
}

export function sums(rank: TimelineRank, windowUs: number): RankSums {
  const busy = WORKS.reduce((total, work) => total + (rank.busy_us[work] ?? 0), 0);
  return {
    busy,
    before: rank.start_us,
    between: Math.max(0, rank.end_us - rank.start_us - busy),
    after: Math.max(0, windowUs - rank.end_us),
  };
}

/** Which of the stages a rank holds, 0-based in model order, each stage is; tells virtual stages apart. */
export function chunks(ranks: readonly TimelineRank[]): Map<number, number> {
  const found = new Map<number, number>();
  for (const rank of ranks) {
    const held = [...new Set(rank.spans.map(([, stage]) => stage))].toSorted((a, b) => a - b);
    held.forEach((stage, chunk) => found.set(stage, chunk));
  }
  return found;
}

/** A piece of work: index of its rank in the timeline, and of its span in the rank. */
export interface Place {
  lane: number;
  span: number;
}

export type Direction = "left" | "right" | "up" | "down" | "first" | "last";

/** The piece of work next to `place`: the one before or after, or the one of the next rank nearest in time. */
export function neighbour(ranks: readonly TimelineRank[], place: Place, direction: Direction): Place {
  const spans = ranks[place.lane]?.spans ?? [];
  const clamp = (span: number) => ({ lane: place.lane, span: Math.min(Math.max(span, 0), spans.length - 1) });
  if (direction === "left") return clamp(place.span - 1);
  if (direction === "right") return clamp(place.span + 1);
  if (direction === "first") return clamp(0);
  if (direction === "last") return clamp(spans.length - 1);
  const by = direction === "up" ? -1 : 1;
  const here = spans[place.span];
  if (here === undefined) return place;
  for (let lane = place.lane + by; lane >= 0 && lane < ranks.length; lane += by) {
    const span = nearest(ranks[lane]?.spans ?? [], (here[3] + here[4]) / 2);
    if (span >= 0) return { lane, span };
  }
  return place;
}

/** The first piece of work that is drawn, if any is. */
export function firstPlace(ranks: readonly TimelineRank[]): Place | null {
  const lane = ranks.findIndex((rank) => rank.spans.length > 0);
  return lane < 0 ? null : { lane, span: 0 };
}

function nearest(spans: readonly TimelineSpan[], at: number): number {
  let best = -1;
  let distance = Number.POSITIVE_INFINITY;
  spans.forEach(([, , , start, end], i) => {
    const off = Math.max(start - at, at - end, 0);
    if (off < distance) [best, distance] = [i, off];
  });
  return best;
}

/** Milliseconds for reading: `0.42 ms`, `50.2 ms`, `1,650 ms`. */
export function milliseconds(us: number): string {
  const ms = us / 1000;
  const digits = ms >= 1000 ? 0 : ms >= 10 ? 1 : 2;
  return `${ms.toLocaleString("en-US", { minimumFractionDigits: 0, maximumFractionDigits: digits })} ms`;
}

/** One piece of work as a sentence. */
export function sentenceOf(rank: TimelineRank, [work, stage, microbatch, start, end]: TimelineSpan): string {
  return (
    `Rank ${rank.rank}, stage ${stage}: ${WORK_NAMES[work]} of micro-batch ${microbatch}, ` +
    `${milliseconds(end - start)}, from ${milliseconds(start)} to ${milliseconds(end)}`
  );
}

/** The timeline in one sentence, for those who do not see the drawing. */
export function summary(shown: TimelineView): string {
  const ranks = shown.ranks.length === 1 ? "1 rank" : `${shown.ranks.length} ranks`;
  return `Schedule of step ${shown.step} on ${ranks}, ${milliseconds(shown.window_us)}`;
}
