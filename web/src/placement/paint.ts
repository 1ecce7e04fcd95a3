import { css, inkOn } from "../theme/color";
import type { Drawing } from "./layout";
import type { Look } from "./SlotMap";

interface Picture {
  canvas: HTMLCanvasElement;
  drawing: Drawing;
  /** Visible part of the drawing, CSS pixels. */
  view: { width: number; height: number; top: number };
  look: (slot: number) => Look;
  active: number | null;
  related?: ((slot: number) => boolean) | undefined;
}

const DIMMED = 0.28;
const RADIUS = 3;

export function paint({ canvas, drawing, view, look, active, related }: Picture): void {
  const context = canvas.getContext("2d");
  if (context === null) return;
  const height = Math.min(view.height || drawing.height, drawing.height);
  const ratio = globalThis.devicePixelRatio || 1;
  canvas.width = Math.round(view.width * ratio);
  canvas.height = Math.round(height * ratio);
  canvas.style.width = `${view.width}px`;
  canvas.style.height = `${height}px`;
  context.setTransform(ratio, 0, 0, ratio, 0, -view.top * ratio);

  const computed = getComputedStyle(canvas);
  const color = (name: string) => computed.getPropertyValue(name).trim();
  const visible = (y: number, size: number) => y + size >= view.top && y <= view.top + height;
  const fills = { leaf: color("--surface-2"), node: color("--surface-3"), island: color("--surface") };
  const line = color("--line");
  const text = color("--text");
  const dim = color("--dim");

  for (const box of drawing.boxes) {
    if (!visible(box.y, box.height)) continue;
    context.fillStyle = fills[box.tier];
    context.strokeStyle = line;
    rounded(context, box.x + 0.5, box.y + 0.5, box.width - 1, box.height - 1, 4);
    context.fill();
    context.stroke();
    if (box.head === 0) continue;
    context.fillStyle = box.tier === "leaf" ? text : dim;
    context.font = `${box.tier === "leaf" ? "600 " : ""}11px system-ui, "DejaVu Sans", sans-serif`;
    context.textAlign = "left";
    context.textBaseline = "middle";
    context.fillText(cut(context, box.label, box.width - 12), box.x + 6, box.y + box.head / 2 + 1);
  }

  const { side } = drawing;
  const font = Math.min(12, Math.floor(side * 0.42));
  for (const cell of drawing.cells) {
    if (!visible(cell.y, side)) continue;
    const { fill, text: mark, out } = look(cell.slot);
    context.globalAlpha = active !== null && related !== undefined && !related(cell.slot) ? DIMMED : 1;
    rounded(context, cell.x, cell.y, side, side, Math.min(RADIUS, side / 4));
    context.fillStyle = fill === null ? color("--slot-free") : css(fill);
    context.fill();
    if (fill === null) {
      context.strokeStyle = color("--line-strong");
      context.lineWidth = 1;
      context.setLineDash(side > 12 ? [3, 2] : []);
      rounded(context, cell.x + 0.5, cell.y + 0.5, side - 1, side - 1, Math.min(RADIUS, side / 4));
      context.stroke();
      context.setLineDash([]);
    }
    if (out === true) cross(context, cell.x, cell.y, side, dim);
    if (mark !== "" && side >= 20) {
      context.fillStyle = fill === null ? dim : css(inkOn(fill));
      context.font = `${font}px system-ui, "DejaVu Sans", sans-serif`;
      context.textAlign = "center";
      context.textBaseline = "middle";
      context.fillText(mark, cell.x + side / 2, cell.y + side / 2 + 1, side - 2);
    }
    context.globalAlpha = 1;
    if (cell.slot === active) {
      context.strokeStyle = text;
      context.lineWidth = 2;
      rounded(context, cell.x - 1, cell.y - 1, side + 2, side + 2, RADIUS + 1);
      context.stroke();
      context.lineWidth = 1;
    }
  }
}

function rounded(context: CanvasRenderingContext2D, x: number, y: number, w: number, h: number, r: number): void {
  context.beginPath();
  context.roundRect(x, y, w, h, r);
}

function cross(context: CanvasRenderingContext2D, x: number, y: number, side: number, color: string): void {
  context.strokeStyle = color;
  context.beginPath();
  context.moveTo(x + 2, y + side - 2);
  context.lineTo(x + side - 2, y + 2);
  context.stroke();
}

/** `text`, shortened to `width` with an ellipsis. */
function cut(context: CanvasRenderingContext2D, text: string, width: number): string {
  if (context.measureText(text).width <= width) return text;
  let low = 0;
  let high = text.length;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (context.measureText(`${text.slice(0, middle)}…`).width <= width) low = middle;
    else high = middle - 1;
  }
  return low === 0 ? "" : `${text.slice(0, low)}…`;
}
