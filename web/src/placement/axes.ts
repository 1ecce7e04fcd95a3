/** Axes of parallelism in words, and colours of ranks along one of them. */

import type { RankView } from "../api/queries";
import { axisColors, type Rgb, type Scheme } from "../theme/color";

/** What a coordinate on an axis is called. */
const COORDINATE: Record<string, string> = {
  tp: "tensor rank",
  cp: "context rank",
  ep: "expert rank",
  pp: "stage",
  dp: "replica",
};

/** What ranks can be coloured by, most telling first. */
const ORDER = ["pp", "dp", "tp", "cp", "ep"];

export function coordinateName(axis: string): string {
  return COORDINATE[axis] ?? axis;
}

export interface AxisDegree {
  axis: string;
  degree: number;
}

function place(axis: string): number {
  return ORDER.includes(axis) ? ORDER.indexOf(axis) : ORDER.length;
}

/** Axes with more than one coordinate; every axis of a job has at least one rank at its last coordinate. */
export function degrees(ranks: readonly RankView[]): AxisDegree[] {
  const found = new Map<string, number>();
  for (const { coordinates } of ranks) {
    for (const [axis, value] of Object.entries(coordinates)) {
      found.set(axis, Math.max(found.get(axis) ?? 1, value + 1));
    }
  }
  return [...found]
    .map(([axis, degree]) => ({ axis, degree }))
    .filter(({ degree }) => degree > 1)
    .toSorted((a, b) => place(a.axis) - place(b.axis));
}

/** `stage 1, replica 0, tensor rank 1`; axes of degree one are left out. */
export function position(rank: RankView, axes: readonly AxisDegree[]): string {
  return axes.map(({ axis }) => `${coordinateName(axis)} ${rank.coordinates[axis] ?? 0}`).join(", ");
}

/** Colour of each coordinate of the chosen axis; one colour for all without an axis. */
export function colorsOf(chosen: AxisDegree | undefined, scheme: Scheme): Rgb[] {
  return axisColors(chosen?.degree ?? 1, scheme);
}

/** Where a rank sits, outer to inner: `leaf l0 · island i1 · node n2 · slot 0`. */
export function seat(rank: Pick<RankView, "leaf" | "island" | "node" | "index">): string {
  const leaf = rank.leaf === null ? "leaf not known" : `leaf ${rank.leaf}`;
  const island = rank.island === null ? "island not known" : `island ${rank.island}`;
  return `${leaf} · ${island} · node ${rank.node} · slot ${rank.index}`;
}
