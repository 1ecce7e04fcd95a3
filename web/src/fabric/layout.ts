/** Where each domain is drawn, in units of the drawing: boxes within boxes, near the shape of the screen. */

import type { Domain, Tier, Tree } from "./tree";

/** Side of a slot. */
export const SIDE = 10;
const GAP = 2;
/** Slots of a node in a row: eight as two rows of four, more eight wide. */
const NODE_COLUMNS: readonly (readonly [number, number])[] = [
  [4, 4],
  [16, 4],
  [Infinity, 8],
];

const PADDING: Record<Tier, number> = { fabric: 0, core: 12, spine: 9, leaf: 6, island: 3, node: 3, slot: 0 };
/** The strip for the name, as a part of the height of the domain, and at least so many units. */
const HEAD: Record<Tier, readonly [number, number]> = {
  fabric: [0, 0],
  core: [0.05, 16],
  spine: [0.06, 14],
  leaf: [0.09, 12],
  island: [0, 6],
  node: [0, 6],
  slot: [0, 0],
};

/** Shapes (width / height) that inner domains are tried in; one of them packs best for the screen. */
const SHAPES = [0.8, 1, 1.3, 1.7, 2.2];

/** Writes the places; `aspect` is width / height of the screen. */
export function layOut(tree: Tree, aspect: number): Tree {
  const { root } = tree;
  const sizes = SHAPES.map((shape) => {
    measure(root, shape, aspect);
    return Math.max(root.width, root.height * aspect);
  });
  measure(root, SHAPES[sizes.indexOf(Math.min(...sizes))] ?? 1, aspect);
  place(root, 0, 0);
  return tree;
}

/** Size of `domain`, near `aspect`, and the places of its children relative to it; what is inside is near `shape`. */
function measure(domain: Domain, shape: number, aspect = shape): void {
  const { tier, children } = domain;
  if (tier === "slot") {
    domain.width = SIDE;
    domain.height = SIDE;
    return;
  }
  // Slots lie alike in every shape: once is enough.
  if (children[0]?.tier === "slot" && domain.width > 0) return;
  for (const child of children) measure(child, shape);
  const gap = children[0]?.tier === "slot" ? GAP : 2 * PADDING[children[0]?.tier ?? "node"];
  const { width, height } = packed(children, gap, aspect);
  const padding = PADDING[tier];
  const [part, least] = HEAD[tier];
  domain.head = Math.max(least, part * height);
  for (const child of children) {
    child.x += padding;
    child.y += domain.head;
  }
  domain.width = width + 2 * padding;
  domain.height = domain.head + height + padding;
}

/** Rows of so many children that a screen of shape `aspect` shows them largest; slots in the rows of a node. */
function packed(children: readonly Domain[], gap: number, aspect: number): { width: number; height: number } {
  if (children[0]?.tier === "slot") {
    const columns = NODE_COLUMNS.find(([most]) => children.length <= most)?.[1] ?? 8;
    return inRows(children, columns, gap);
  }
  const [sample] = children;
  if (sample === undefined) return { width: SIDE, height: SIDE };
  const guess = Math.sqrt((children.length * aspect * sample.height) / sample.width);
  let best = 1;
  let least = Infinity;
  for (let columns = Math.max(1, Math.floor(guess) - 3); columns <= guess + 3 && columns <= children.length; columns += 1) {
    const { width, height } = inRows(children, columns, gap);
    const size = Math.max(width, height * aspect);
    if (size < least) [best, least] = [columns, size];
  }
  return inRows(children, best, gap);
}

function inRows(children: readonly Domain[], columns: number, gap: number): { width: number; height: number } {
  let x = 0;
  let y = 0;
  let width = 0;
  let rowHeight = 0;
  children.forEach((child, i) => {
    if (i > 0 && i % columns === 0) {
      x = 0;
      y += rowHeight + gap;
      rowHeight = 0;
    }
    child.x = x;
    child.y = y;
    x += child.width + gap;
    width = Math.max(width, x - gap);
    rowHeight = Math.max(rowHeight, child.height);
  });
  return { width, height: y + rowHeight };
}

/** Relative places to absolute ones. */
function place(domain: Domain, x: number, y: number): void {
  domain.x += x;
  domain.y += y;
  for (const child of domain.children) place(child, domain.x, domain.y);
}
