import type { TimelineRank } from "../api/queries";
import type { Place } from "./spans";

/** Room for `rank 1234` left of the lanes. */
export const GUTTER = 56;
export const AXIS = 22;
/** Pixels of the longest rank's pieces on the mean: fewer and the drawing gets wider than the page. */
const LEAST_PIECE = 6;
/** Browsers draw no canvas much wider on a dense screen. */
const WIDEST = 8_000;
const TICK_SPACING = 80;

export interface Drawing {
  width: number;
  height: number;
  /** Height of a lane with its gap. */
  lane: number;
  gap: number;
}

export function layOut(ranks: readonly TimelineRank[], available: number): Drawing {
  const longest = Math.max(0, ...ranks.map((rank) => rank.spans.length));
  const width = Math.max(available, Math.min(GUTTER + longest * LEAST_PIECE, WIDEST));
  const lane = ranks.length <= 32 ? 28 : ranks.length <= 128 ? 14 : 6;
  const gap = lane >= 28 ? 4 : lane >= 14 ? 2 : 1;
  return { width, height: ranks.length * lane + AXIS, lane, gap };
}

export function tooSmallForNumbers({ lane }: Drawing): boolean {
  return lane < 14;
}

/** The pixel at which a time is drawn. */
export function xOf(drawing: Drawing, windowUs: number, us: number): number {
  return GUTTER + ((drawing.width - GUTTER) * us) / Math.max(1, windowUs);
}

/** The piece of work at a pixel. */
export function laneAt(
  drawing: Drawing,
  ranks: readonly TimelineRank[],
  windowUs: number,
  x: number,
  y: number,
): Place | null {
  const lane = Math.floor(y / drawing.lane);
  const at = ((x - GUTTER) * windowUs) / (drawing.width - GUTTER);
  const span = ranks[lane]?.spans.findIndex(([, , , start, end]) => start <= at && at <= end) ?? -1;
  return span < 0 ? null : { lane, span };
}

/** Round times of the axis, microseconds: 1, 2 or 5 times a power of ten apart. */
export function ticks(windowUs: number, pixels: number): number[] {
  if (windowUs <= 0) return [0];
  const wanted = windowUs / Math.max(1, Math.floor(pixels / TICK_SPACING));
  const power = 10 ** Math.floor(Math.log10(wanted));
  const step = Math.max(1, power * ([1, 2, 5].find((factor) => factor * power >= wanted) ?? 10));
  return Array.from({ length: Math.floor(windowUs / step) + 1 }, (_, i) => i * step);
}
