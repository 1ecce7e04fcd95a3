/** Where each box and cell is drawn, in CSS pixels. Pure, so that it can be tested without a canvas. */

import type { Domain, Tier } from "./tree";

export interface Box {
  tier: Tier;
  label: string;
  x: number;
  y: number;
  width: number;
  height: number;
  /** Height of the strip that holds the label; 0: no room for one. */
  head: number;
}

export interface Cell {
  /** Index into the list of places. */
  slot: number;
  x: number;
  y: number;
}

export interface Drawing {
  width: number;
  height: number;
  /** Side of a cell. */
  side: number;
  /** Outer boxes before those inside them. */
  boxes: Box[];
  /** In reading order of the tree. */
  cells: Cell[];
}

interface Density {
  side: number;
  gap: number;
  padding: number;
  labels: readonly Tier[];
}

const DENSITIES: readonly (readonly [number, Density])[] = [
  [96, { side: 36, gap: 5, padding: 8, labels: ["leaf", "node", "island"] }],
  [768, { side: 24, gap: 3, padding: 6, labels: ["leaf", "node", "island"] }],
  [3_000, { side: 14, gap: 2, padding: 4, labels: ["leaf", "node"] }],
  [Infinity, { side: 9, gap: 1, padding: 3, labels: ["leaf"] }],
];

const HEAD = 18;
/** Widest glyphs of an 11 px label, on average. */
const LABEL_CHARACTER = 6.4;

interface Measured {
  domain: Domain;
  width: number;
  height: number;
  head: number;
  /** Children with their place inside; empty for a domain of slots. */
  inside: { child: Measured; x: number; y: number }[];
  columns: number;
}

export function layOut(domains: readonly Domain[], slotCount: number, width: number): Drawing {
  const density = DENSITIES.find(([limit]) => slotCount <= limit)?.[1] ?? DENSITIES[DENSITIES.length - 1]![1];
  const measured = domains.map((domain) => measure(domain, width, density));
  const { placed, height } = flow(measured, width, density.gap * 2);
  const drawing: Drawing = { width, height, side: density.side, boxes: [], cells: [] };
  for (const { child, x, y } of placed) emit(child, x, y, density, drawing);
  return drawing;
}

function measure(domain: Domain, available: number, density: Density): Measured {
  const { padding, side, gap } = density;
  const inner = available - 2 * padding;
  const labelled = density.labels.includes(domain.tier);
  const head = labelled ? HEAD : padding;
  const labelWidth = labelled ? Math.min(inner, Math.ceil(domain.label.length * LABEL_CHARACTER)) : 0;
  if (domain.children.length === 0) {
    const fit = Math.max(1, Math.floor((inner + gap) / (side + gap)));
    const columns = Math.min(fit, preferredColumns(domain.slots.length));
    const rows = Math.ceil(domain.slots.length / columns);
    const content = columns * (side + gap) - gap;
    return {
      domain,
      head,
      columns,
      inside: [],
      width: Math.max(content, labelWidth) + 2 * padding,
      height: head + rows * (side + gap) - gap + padding,
    };
  }
  const children = domain.children.map((child) => measure(child, inner, density));
  const { placed, width, height } = flow(children, inner, gap * 2);
  return {
    domain,
    head,
    columns: 0,
    inside: placed.map(({ child, x, y }) => ({ child, x: x + padding, y: y + head })),
    width: Math.max(width, labelWidth) + 2 * padding,
    height: head + height + padding,
  };
}

/** Up to four slots in a row, eight as two rows of four, larger nodes eight wide. */
function preferredColumns(slots: number): number {
  if (slots <= 4) return Math.max(1, slots);
  return slots <= 16 ? 4 : 8;
}

/** Left to right, then down, like words. */
function flow(items: Measured[], available: number, gap: number) {
  const placed: { child: Measured; x: number; y: number }[] = [];
  let x = 0;
  let y = 0;
  let rowHeight = 0;
  let width = 0;
  for (const child of items) {
    if (x > 0 && x + child.width > available) {
      x = 0;
      y += rowHeight + gap;
      rowHeight = 0;
    }
    placed.push({ child, x, y });
    width = Math.max(width, x + child.width);
    x += child.width + gap;
    rowHeight = Math.max(rowHeight, child.height);
  }
  return { placed, width, height: y + rowHeight };
}

function emit(item: Measured, x: number, y: number, density: Density, into: Drawing): void {
  const { domain, width, height, head } = item;
  into.boxes.push({ tier: domain.tier, label: domain.label, x, y, width, height, head: head === HEAD ? HEAD : 0 });
  for (const { child, x: dx, y: dy } of item.inside) emit(child, x + dx, y + dy, density, into);
  const pitch = density.side + density.gap;
  domain.slots.forEach((slot, i) => {
    into.cells.push({
      slot,
      x: x + density.padding + (i % item.columns) * pitch,
      y: y + head + Math.floor(i / item.columns) * pitch,
    });
  });
}

/** Index into `cells` of the one under a point; -1 for none. */
export function cellAt(drawing: Drawing, x: number, y: number): number {
  const { side } = drawing;
  return drawing.cells.findIndex((cell) => x >= cell.x && x < cell.x + side && y >= cell.y && y < cell.y + side);
}

export type Direction = "left" | "right" | "up" | "down" | "first" | "last";

/** Index of the cell that an arrow key leads to; the same index where there is none. */
export function neighbour(drawing: Drawing, from: number, direction: Direction): number {
  const { cells } = drawing;
  const last = cells.length - 1;
  if (direction === "first") return 0;
  if (direction === "last") return last;
  if (direction === "left") return Math.max(0, from - 1);
  if (direction === "right") return Math.min(last, from + 1);
  const here = cells[from];
  if (here === undefined) return from;
  const sign = direction === "down" ? 1 : -1;
  let best = from;
  let bestScore = Infinity;
  cells.forEach((cell, i) => {
    const dy = (cell.y - here.y) * sign;
    if (dy <= 0) return;
    // Nearest row first, nearest column within it.
    const score = dy * 4 + Math.abs(cell.x - here.x);
    if (score < bestScore) {
      best = i;
      bestScore = score;
    }
  });
  return best;
}
