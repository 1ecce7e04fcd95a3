import type { TimelineView } from "../api/queries";
import { css, inkOn, type Scheme } from "../theme/color";
import { workColor } from "./colors";
import { AXIS, type Drawing, GUTTER, ticks, tooSmallForNumbers, xOf } from "./layout";
import { milliseconds, type Place } from "./spans";

interface Picture {
  canvas: HTMLCanvasElement;
  drawing: Drawing;
  shown: TimelineView;
  chunkOf: Map<number, number>;
  active: Place | null;
  scheme: Scheme;
}

const FONT = 'system-ui, "DejaVu Sans", sans-serif';
const NUMBER_ROOM = 14;

export function paint({ canvas, drawing, shown, chunkOf, active, scheme }: Picture): void {
  const context = canvas.getContext("2d");
  if (context === null) return;
  const { width, height, lane, gap } = drawing;
  const ratio = Math.min(globalThis.devicePixelRatio || 1, 16_000 / width);
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  const computed = getComputedStyle(canvas);
  const color = (name: string) => computed.getPropertyValue(name).trim();
  const [idle, line, dim, text] = [color("--surface-3"), color("--line"), color("--dim"), color("--text")];
  context.textBaseline = "middle";

  context.font = `11px ${FONT}`;
  context.textAlign = "center";
  for (const tick of ticks(shown.window_us, width - GUTTER)) {
    const x = Math.round(xOf(drawing, shown.window_us, tick)) + 0.5;
    context.strokeStyle = line;
    context.beginPath();
    context.moveTo(x, 0);
    context.lineTo(x, height - AXIS + 4);
    context.stroke();
    const label = milliseconds(tick);
    const half = context.measureText(label).width / 2;
    context.fillStyle = dim;
    context.fillText(label, Math.min(Math.max(x, half), width - half), height - AXIS / 2 + 2);
  }

  shown.ranks.forEach((rank, row) => {
    const top = row * lane;
    const tall = lane - gap;
    if (!tooSmallForNumbers(drawing)) {
      context.fillStyle = dim;
      context.textAlign = "left";
      context.font = `11px ${FONT}`;
      context.fillText(`rank ${rank.rank}`, 0, top + tall / 2 + 1, GUTTER - 6);
    }
    context.fillStyle = idle;
    context.fillRect(GUTTER, top, width - GUTTER, tall);
    rank.spans.forEach(([work, stage, microbatch, start, end], i) => {
      const x = xOf(drawing, shown.window_us, start);
      const wide = Math.max(1, xOf(drawing, shown.window_us, end) - x - (tall > 5 ? 1 : 0));
      const fill = workColor(work, chunkOf.get(stage) ?? 0, scheme);
      context.fillStyle = css(fill);
      context.fillRect(x, top, wide, tall);
      if (wide >= NUMBER_ROOM && !tooSmallForNumbers(drawing)) {
        context.fillStyle = css(inkOn(fill));
        context.textAlign = "center";
        context.font = `${Math.min(11, tall - 2)}px ${FONT}`;
        context.fillText(String(microbatch), x + wide / 2, top + tall / 2 + 1, wide - 2);
      }
      if (active?.lane === row && active.span === i) {
        context.strokeStyle = text;
        context.lineWidth = 2;
        context.strokeRect(x + 1, top + 1, Math.max(1, wide - 2), Math.max(1, tall - 2));
        context.lineWidth = 1;
      }
    });
  });
}
