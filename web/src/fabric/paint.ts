/** Puts a scene on a canvas. */

import { css, inkOn, type Rgb } from "../theme/color";
import { type Camera, onScreen, type Size } from "./camera";
import { FREE, GONE, RESTING, type Scene } from "./scene";
import type { Domain, Tier } from "./tree";

const DIMMED = 0.25;
const FONT = 'system-ui, "DejaVu Sans", sans-serif';

export interface Marks {
  /** The domain under the pointer or the keyboard's cursor. */
  cursor: Domain | null;
  /** Nodes that a search has found. */
  found: readonly Domain[];
}

export interface Palette {
  boxes: Record<Tier, string>;
  line: string;
  lineStrong: string;
  text: string;
  dim: string;
  accent: string;
  free: string;
  resting: string;
  gone: string;
  /** By index of the job. */
  jobs: string[];
  inks: string[];
}

export function paletteOf(element: Element, jobs: readonly Rgb[]): Palette {
  const computed = getComputedStyle(element);
  const color = (name: string) => computed.getPropertyValue(name).trim();
  const [surface, second, third] = [color("--surface"), color("--surface-2"), color("--surface-3")];
  return {
    boxes: { fabric: surface, core: surface, spine: surface, leaf: second, island: third, node: third, slot: third },
    line: color("--line"),
    lineStrong: color("--line-strong"),
    text: color("--text"),
    dim: color("--dim"),
    accent: color("--accent"),
    free: color("--slot-free"),
    resting: color("--state-recovering-bg"),
    gone: color("--state-failed-bg"),
    jobs: jobs.map(css),
    inks: jobs.map((fill) => css(inkOn(fill))),
  };
}

/** Sets the size of the canvas in device pixels and draws everything anew. */
export function paint(
  canvas: HTMLCanvasElement,
  screen: Size,
  scene: Scene,
  { camera, palette, marks }: { camera: Camera; palette: Palette; marks: Marks },
): void {
  const context = canvas.getContext("2d");
  if (context === null) return;
  const ratio = globalThis.devicePixelRatio || 1;
  const [width, height] = [Math.round(screen.width * ratio), Math.round(screen.height * ratio)];
  // Setting a size, even the same one, throws the canvas away.
  if (canvas.width !== width) canvas.width = width;
  if (canvas.height !== height) canvas.height = height;
  canvas.style.width = `${screen.width}px`;
  canvas.style.height = `${screen.height}px`;
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, screen.width, screen.height);

  drawBoxes(context, scene, palette);
  drawSlots(context, scene.slots, palette, 1);
  drawSlots(context, scene.dimmed, palette, DIMMED);
  drawCrosses(context, scene.crossed, palette);
  drawTexts(context, scene, palette);
  for (const domain of marks.found) outline(context, domain, camera, palette.accent, 2);
  if (marks.cursor !== null) outline(context, marks.cursor, camera, palette.text, 2);
}

function drawBoxes(context: CanvasRenderingContext2D, { boxes }: Scene, palette: Palette): void {
  context.lineWidth = 1;
  context.strokeStyle = palette.line;
  for (const [tier, { x, y, width, height }] of boxes) {
    context.fillStyle = palette.boxes[tier];
    context.fillRect(x, y, width, height);
    if (width > 16) context.strokeRect(x + 0.5, y + 0.5, width - 1, height - 1);
  }
}

function fillFor(fill: number, palette: Palette): string {
  if (fill === FREE) return palette.free;
  if (fill === RESTING) return palette.resting;
  return fill === GONE ? palette.gone : (palette.jobs[fill] ?? palette.dim);
}

function drawSlots(
  context: CanvasRenderingContext2D,
  slots: ReadonlyMap<number, number[]>,
  palette: Palette,
  alpha: number,
): void {
  context.globalAlpha = alpha;
  context.lineWidth = 1;
  context.strokeStyle = palette.lineStrong;
  for (const [fill, flat] of slots) {
    context.fillStyle = fillFor(fill, palette);
    for (let i = 0; i < flat.length; i += 4) {
      const [x = 0, y = 0, width = 0, height = 0] = [flat[i], flat[i + 1], flat[i + 2], flat[i + 3]];
      context.fillRect(x, y, width, height);
      if (fill < 0 && width >= 8) context.strokeRect(x + 0.5, y + 0.5, width - 1, height - 1);
    }
  }
  context.globalAlpha = 1;
}

function drawCrosses(context: CanvasRenderingContext2D, crossed: readonly number[], palette: Palette): void {
  context.strokeStyle = palette.dim;
  context.beginPath();
  for (let i = 0; i < crossed.length; i += 3) {
    const [x = 0, y = 0, side = 0] = [crossed[i], crossed[i + 1], crossed[i + 2]];
    context.moveTo(x + 1.5, y + side - 1.5);
    context.lineTo(x + side - 1.5, y + 1.5);
  }
  context.stroke();
}

function drawTexts(context: CanvasRenderingContext2D, { labels, ranks }: Scene, palette: Palette): void {
  context.textBaseline = "middle";
  context.textAlign = "left";
  for (const { tier, text, size, x, y, height, width } of labels) {
    context.fillStyle = tier === "node" || tier === "island" ? palette.dim : palette.text;
    context.font = `${tier === "node" || tier === "island" ? "" : "600 "}${size}px ${FONT}`;
    context.fillText(text, x, y + height / 2 + 0.5, width);
  }
  context.textAlign = "center";
  for (const { x, y, text, fill, size } of ranks) {
    context.fillStyle = palette.inks[fill] ?? palette.text;
    context.font = `${size}px ${FONT}`;
    context.fillText(text, x, y + 0.5);
  }
}

/** A frame around a domain, not less than a few pixels wide. */
function outline(context: CanvasRenderingContext2D, domain: Domain, camera: Camera, color: string, line: number): void {
  const box = onScreen(camera, domain);
  const grown = Math.max(0, 6 - box.width) / 2 + 1;
  context.lineWidth = line;
  context.strokeStyle = color;
  context.strokeRect(box.x - grown, box.y - grown, box.width + 2 * grown, box.height + 2 * grown);
}
