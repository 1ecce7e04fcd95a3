import type { FindingView } from "../../../api/queries";
import { css, oklch, type Rgb, type Scheme } from "../../../theme/color";
import { columnOf, type Grid, type Plane } from "./heat";

const AXIS = 22;
const GUTTER = 56;
const TICK_SPACING = 80;
const FONT = 'system-ui, "DejaVu Sans", sans-serif';
/** Colours between nothing and the strongest, or twice the peers' time. */
const SHADES = 200;
/** Times its peers' at which a cell has its strongest colour. */
export const STRONGEST = 1.5;

export interface HeatDrawing {
  width: number;
  height: number;
  /** Height of a row. */
  row: number;
  gutter: number;
}

export interface Cell {
  row: number;
  column: number;
}

export function layOutHeat(rows: number, columns: number, available: number): HeatDrawing {
  const row = Math.max(2, Math.min(18, Math.floor(420 / Math.max(1, rows))));
  return { width: Math.max(available, GUTTER + columns), height: rows * row + AXIS, row, gutter: GUTTER };
}

export function cellAt(drawing: HeatDrawing, grid: Grid, x: number, y: number): Cell | null {
  const row = Math.floor(y / drawing.row);
  const column = Math.floor(((x - GUTTER) * grid.columns.length) / (drawing.width - GUTTER));
  return row >= 0 && row < grid.rows && column >= 0 && column < grid.columns.length ? { row, column } : null;
}

/**
 * Colour of a cell. Of computing `value` is the ratio to its peers: grey like them, warm above, blue below. Of waiting it
 * is seconds, and `most` those of the strongest colour: who waits least is palest.
 */
export function heatColor(plane: Plane, value: number, most: number, scheme: Scheme): Rgb {
  const light = scheme === "light";
  const [base, strongest] = light ? [0.93, 0.5] : [0.3, 0.78];
  if (plane === "wait") {
    const part = most > 0 ? Math.min(1, value / most) : 0;
    return oklch(base + (strongest - base) * part, 0.01 + 0.1 * part, 245);
  }
  const part = Math.min(1, Math.abs(value - 1) / (STRONGEST - 1));
  // Equal steps near the middle are told apart worst, and a tenth matters there.
  const shown = Math.sqrt(part);
  return oklch(base + (strongest - base) * shown, 0.008 + 0.15 * shown, value >= 1 ? 40 : 245);
}

interface Picture {
  canvas: HTMLCanvasElement;
  drawing: HeatDrawing;
  grid: Grid;
  plane: Plane;
  /** What is coloured: ratios, or seconds of waiting. */
  values: Float32Array;
  most: number;
  found: readonly FindingView[];
  ranksARow: number;
  active: Cell | null;
  scheme: Scheme;
}

export function paint(picture: Picture): void {
  const { canvas, drawing, grid, active } = picture;
  const context = canvas.getContext("2d");
  if (context === null) return;
  const ratio = Math.min(globalThis.devicePixelRatio || 1, 8_000 / drawing.height, 2);
  canvas.width = Math.round(drawing.width * ratio);
  canvas.height = Math.round(drawing.height * ratio);
  canvas.style.width = `${drawing.width}px`;
  canvas.style.height = `${drawing.height}px`;
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  const style = getComputedStyle(canvas);
  const [dim, text] = ["--dim", "--text"].map((name) => style.getPropertyValue(name).trim()) as [string, string];
  context.imageSmoothingEnabled = false;
  context.drawImage(image(picture), GUTTER, 0, drawing.width - GUTTER, drawing.height - AXIS);
  labels(context, picture, dim);
  outlines(context, picture, text);
  if (active !== null) {
    const wide = (drawing.width - GUTTER) / grid.columns.length;
    context.strokeStyle = text;
    context.lineWidth = 2;
    context.strokeRect(
      GUTTER + active.column * wide - 1,
      active.row * drawing.row - 1,
      Math.max(4, wide + 2),
      Math.max(4, drawing.row + 2),
    );
  }
}

/** One pixel a cell. */
function image({ grid, plane, values, most, scheme, canvas }: Picture): HTMLCanvasElement {
  const wide = Math.max(1, grid.columns.length);
  const pixels = new ImageData(wide, Math.max(1, grid.rows));
  const nothing = getComputedStyle(canvas).getPropertyValue("--surface-2");
  const shades = new Map<number, Rgb>();
  const unit = plane === "wait" ? Math.max(most, Number.MIN_VALUE) : 1;
  for (let i = 0; i < values.length; i += 1) {
    const value = values[i] ?? Number.NaN;
    if (Number.isNaN(value)) continue; // transparent: the surface shows
    const shade = Math.round((SHADES * value) / unit);
    let color = shades.get(shade);
    if (color === undefined) {
      color = heatColor(plane, (shade * unit) / SHADES, most, scheme);
      shades.set(shade, color);
    }
    pixels.data.set([...color, 255], 4 * i);
  }
  const cells = document.createElement("canvas");
  cells.width = wide;
  cells.height = Math.max(1, grid.rows);
  const context = cells.getContext("2d");
  if (context !== null) {
    context.putImageData(pixels, 0, 0);
    context.globalCompositeOperation = "destination-over";
    context.fillStyle = nothing;
    context.fillRect(0, 0, cells.width, cells.height);
  }
  return cells;
}

function labels(context: CanvasRenderingContext2D, { drawing, grid, ranksARow }: Picture, dim: string): void {
  context.font = `11px ${FONT}`;
  context.fillStyle = dim;
  context.textBaseline = "middle";
  context.textAlign = "left";
  const every = Math.ceil(14 / drawing.row);
  for (let row = 0; row < grid.rows; row += every) {
    context.fillText(`rank ${row * ranksARow}`, 0, row * drawing.row + Math.max(7, drawing.row / 2), GUTTER - 6);
  }
  const wide = (drawing.width - GUTTER) / Math.max(1, grid.columns.length);
  const apart = Math.max(1, Math.ceil(TICK_SPACING / wide));
  context.textAlign = "center";
  for (let column = 0; column < grid.columns.length; column += apart) {
    const label = String(grid.columns[column]?.[0] ?? "");
    const half = context.measureText(label).width / 2;
    const x = GUTTER + (column + 0.5) * wide;
    context.fillText(label, Math.min(Math.max(x, GUTTER + half), drawing.width - half), drawing.height - AXIS / 2 + 2);
  }
}

/** A frame around the steps in which a rank was found slow. */
function outlines(context: CanvasRenderingContext2D, { drawing, grid, found, ranksARow }: Picture, text: string): void {
  if (grid.columns.length === 0) return;
  const wide = (drawing.width - GUTTER) / grid.columns.length;
  const [first, last] = [grid.columns[0]?.[0] ?? 0, grid.columns.at(-1)?.[1] ?? 0];
  context.strokeStyle = text;
  context.lineWidth = 1.5;
  for (const one of found) {
    if (one.to_step < first || one.from_step > last) continue;
    const left = columnOf(grid.columns, one.from_step);
    const right = one.ongoing ? grid.columns.length - 1 : columnOf(grid.columns, one.to_step);
    for (const rank of one.ranks) {
      const top = Math.floor(rank / ranksARow) * drawing.row;
      context.strokeRect(GUTTER + left * wide, top + 0.5, Math.max(3, (right - left + 1) * wide), Math.max(2, drawing.row - 1));
    }
  }
}

export function gradient(plane: Plane, scheme: Scheme): string {
  const [from, to] = plane === "wait" ? [0, 1] : [1 / STRONGEST, STRONGEST];
  const stops = Array.from({ length: 13 }, (_, i) => css(heatColor(plane, from + ((to - from) * i) / 12, 1, scheme)));
  return `linear-gradient(90deg, ${stops.join(", ")})`;
}
