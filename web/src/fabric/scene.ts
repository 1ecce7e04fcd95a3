/** What is drawn for a camera: a list of rectangles and labels. Pure, so that the work of a frame can be counted. */

import { type Box, type Camera, onScreen, type Size } from "./camera";
import { SIDE } from "./layout";
import type { Occupancy } from "./occupancy";
import { type Domain, type Tier, titleOf, type Tree } from "./tree";

/** Below this side, pixels, slots are not drawn one by one but as shares of their node. */
const LEAST_SIDE = 3;
/** Below this size, pixels, a domain is drawn as one box with shares. */
const LEAST_BOX = 7;
const LEAST_LABEL = 8;
const LARGEST_LABEL = 13;
/** Width of a letter, as a part of its height, on average. */
const LETTER = 0.56;
/** Slots show their rank from this side on. */
const RANK_SIDE = 18;

/** Index of a job, or how a slot without one looks. */
export const FREE = -1;
export const RESTING = -2;
export const GONE = -3;

export interface Label extends Box {
  tier: Tier;
  text: string;
  size: number;
}

export interface Rank {
  x: number;
  y: number;
  text: string;
  fill: number;
  size: number;
}

export interface Scene {
  /** Backgrounds of domains, outer before inner. */
  boxes: [Tier, Box][];
  /** By fill: an index of a job or one of the constants; x, y, width, height of each, flat. */
  slots: Map<number, number[]>;
  /** The same, of slots beside the highlighted job. */
  dimmed: Map<number, number[]>;
  /** Slots on nodes that take no work or are gone: crossed out. x, y, side. */
  crossed: number[];
  ranks: Rank[];
  labels: Label[];
}

export interface Look {
  occupancy: Occupancy;
  /** Index of the job that stands out; null: none. */
  highlight: number | null;
}

/** Everything visible. What lies outside the screen is not looked at, and what is too small is put together. */
export function sceneOf(tree: Tree, look: Look, camera: Camera, screen: Size): Scene {
  const scene: Scene = { boxes: [], slots: new Map(), dimmed: new Map(), crossed: [], ranks: [], labels: [] };
  addDomain(tree.root, { scene, look, camera, screen });
  return scene;
}

/** Things drawn: what a frame costs. */
export function sizeOf({ boxes, slots, dimmed, crossed, ranks, labels }: Scene): number {
  let count = boxes.length + crossed.length / 3 + ranks.length + labels.length;
  for (const rectangles of [...slots.values(), ...dimmed.values()]) count += rectangles.length / 4;
  return count;
}

/** Whether the slots of a node are drawn one by one. */
export function showsSlots({ scale }: Camera): boolean {
  return SIDE * scale >= LEAST_SIDE;
}

/** Whether `domain` is drawn as one box, whatever it holds. */
export function isWhole(domain: Domain, camera: Camera): boolean {
  if (domain.tier === "slot") return true;
  if (domain.tier === "node") return !showsSlots(camera);
  return domain.tier !== "fabric" && Math.min(domain.width, domain.height) * camera.scale < LEAST_BOX;
}

interface Pass {
  scene: Scene;
  look: Look;
  camera: Camera;
  screen: Size;
}

function addDomain(domain: Domain, pass: Pass): void {
  const { scene, camera, screen } = pass;
  const box = onScreen(camera, domain);
  if (box.x > screen.width || box.y > screen.height || box.x + box.width < 0 || box.y + box.height < 0) return;
  if (domain.tier === "slot") {
    addSlot(domain.first, box, pass);
    return;
  }
  if (domain.tier !== "fabric") scene.boxes.push([domain.tier, box]);
  if (isWhole(domain, camera)) {
    addShares(domain, box, pass);
    return;
  }
  addLabel(domain, box, pass);
  for (const child of domain.children) addDomain(child, pass);
}

export function fillOf(slot: number, { holder, use }: Occupancy): number {
  const job = holder[slot] ?? -1;
  if (job >= 0) return job;
  return use[slot] === 0 ? FREE : use[slot] === 1 ? RESTING : GONE;
}

function rectangles({ scene, look }: Pass, fill: number): number[] {
  const into = look.highlight === null || look.highlight === fill ? scene.slots : scene.dimmed;
  const found = into.get(fill);
  if (found !== undefined) return found;
  const made: number[] = [];
  into.set(fill, made);
  return made;
}

function addSlot(slot: number, { x, y, width }: Box, pass: Pass): void {
  const { scene, look } = pass;
  const fill = fillOf(slot, look.occupancy);
  rectangles(pass, fill).push(x, y, width, width);
  if (look.occupancy.use[slot] !== 0 && width >= LEAST_SIDE * 2) scene.crossed.push(x, y, width);
  const rank = look.occupancy.rank[slot] ?? -1;
  if (rank >= 0 && fill >= 0 && width >= RANK_SIDE) {
    const size = Math.min(14, width * 0.42, (width * 0.9) / (LETTER * String(rank).length));
    scene.ranks.push({ x: x + width / 2, y: y + width / 2, text: String(rank), fill, size });
  }
}

/** Shares side by side, in the order in which they come first. */
function addShares(domain: Domain, box: Box, pass: Pass): void {
  const counts = new Map<number, number>();
  for (let slot = domain.first; slot < domain.end; slot += 1) {
    const fill = fillOf(slot, pass.look.occupancy);
    counts.set(fill, (counts.get(fill) ?? 0) + 1);
  }
  let x = box.x;
  for (const [fill, count] of counts) {
    const width = (box.width * count) / (domain.end - domain.first);
    rectangles(pass, fill).push(x, box.y, width, box.height);
    x += width;
  }
}

/** The name in the head of the box, as long as the head is on the screen; it goes along with the left edge. */
function addLabel(domain: Domain, box: Box, { scene, camera, screen }: Pass): void {
  const head = domain.head * camera.scale;
  const size = Math.min(LARGEST_LABEL, head * 0.78);
  if (size < LEAST_LABEL || box.y + head < size * 1.2) return;
  const x = Math.max(box.x, 0) + 4;
  const y = Math.max(box.y, 0);
  const width = Math.min(box.x + box.width, screen.width) - x - 2;
  const full = domain.tier === "node" ? (domain.name ?? "") : titleOf(domain);
  const fits = Math.floor(width / (LETTER * size));
  if (fits < Math.min(3, full.length)) return;
  const text = full.length <= fits ? full : `${full.slice(0, fits - 1)}…`;
  scene.labels.push({ tier: domain.tier, text, size, x, y, width, height: Math.min(box.y + head - y, size * 2) });
}

/** The innermost domain that is drawn at a point of the screen; null beside all. */
export function domainAt(tree: Tree, camera: Camera, point: { x: number; y: number }): Domain | null {
  const x = point.x / camera.scale + camera.x;
  const y = point.y / camera.scale + camera.y;
  const holds = (domain: Domain) =>
    x >= domain.x && x < domain.x + domain.width && y >= domain.y && y < domain.y + domain.height;
  let found = tree.root;
  if (!holds(found)) return null;
  while (!isWhole(found, camera)) {
    const inner = found.children.find(holds);
    if (inner === undefined) break;
    found = inner;
  }
  return found.tier === "fabric" ? null : found;
}
