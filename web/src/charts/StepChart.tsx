import { useComputedColorScheme } from "@mantine/core";
import { useEffect, useRef } from "react";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import styles from "./charts.module.css";

export interface Line {
  label: string;
  /** CSS variable of the colour. */
  color: string;
  values: (number | null)[];
  kind: "line" | "dashed" | "points";
  format: (value: number) => string;
}

interface StepChartProps {
  /** What the chart shows, for those who do not see it. */
  summary: string;
  steps: number[];
  lines: Line[];
  /** Steps to mark by a vertical line. */
  marks: number[];
  /** Axis label with the unit. */
  unit: string;
  formatTick: (value: number) => string;
  fromZero?: boolean;
}

const HEIGHT = 200;

/** Curves over optimizer steps. */
export function StepChart({ summary, steps, lines, marks, unit, formatTick, fromZero = false }: StepChartProps) {
  const host = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const scheme = useComputedColorScheme("light");
  const latest = useRef({ marks, lines, formatTick });
  // A chart is built anew only when its set of lines or the colours change; new points are set on it.
  const shape = JSON.stringify(lines.map(({ label, color, kind }) => [label, color, kind]));

  useEffect(() => {
    latest.current = { marks, lines, formatTick };
  }, [marks, lines, formatTick]);

  useEffect(() => {
    const element = host.current;
    if (element === null) return;
    const ink = readColors(element);
    const chart = new uPlot(
      {
        width: Math.max(200, element.clientWidth),
        height: HEIGHT,
        scales: { x: { time: false }, y: { range: (_, low, high) => padded(low, high, fromZero) } },
        legend: { live: true },
        cursor: { y: false, points: { size: 6 } },
        axes: [
          { ...axis(ink), size: 34, values: (_, ticks) => ticks.map((tick) => (Number.isInteger(tick) ? String(tick) : "")) },
          { ...axis(ink), size: 56, values: (_, ticks) => ticks.map((tick) => latest.current.formatTick(tick)) },
        ],
        series: [
          { label: "step", value: (_, value) => (value == null ? "–" : String(value)) },
          ...latest.current.lines.map((line, index) => drawn(line, ink, () => latest.current.lines[index])),
        ],
        hooks: { setLegend: [showNewest], draw: [(self) => drawMarks(self, latest.current.marks, ink.dim)] },
      },
      [[], ...latest.current.lines.map(() => [])],
      element,
    );
    plot.current = chart;
    const resize = new ResizeObserver(() => chart.setSize({ width: Math.max(200, element.clientWidth), height: HEIGHT }));
    resize.observe(element);
    return () => {
      resize.disconnect();
      chart.destroy();
      plot.current = null;
    };
  }, [scheme, shape, fromZero]);

  useEffect(() => {
    plot.current?.setData([steps, ...lines.map(({ values }) => values)]);
    if (plot.current !== null) showNewest(plot.current);
  }, [steps, lines, marks, scheme, shape]);

  return (
    <figure className={styles.figure}>
      <figcaption className={styles.unit}>{unit}</figcaption>
      <div ref={host} className={styles.host} role="img" aria-label={summary} />
    </figure>
  );
}

interface Ink {
  dim: string;
  grid: string;
  of: (variable: string) => string;
}

function readColors(element: HTMLElement): Ink {
  const computed = getComputedStyle(element);
  const of = (variable: string) => computed.getPropertyValue(variable).trim();
  return { dim: of("--dim"), grid: of("--line"), of };
}

function axis(ink: Ink): uPlot.Axis {
  return {
    stroke: ink.dim,
    font: "11px system-ui, sans-serif",
    grid: { stroke: ink.grid, width: 1 },
    ticks: { stroke: ink.grid, width: 1, size: 4 },
  };
}

function drawn(line: Line, ink: Ink, now: () => Line | undefined): uPlot.Series {
  const color = ink.of(line.color);
  return {
    label: line.label,
    stroke: color,
    width: line.kind === "points" ? 0 : 1.75,
    spanGaps: line.kind !== "points",
    ...(line.kind === "dashed" ? { dash: [6, 4] } : {}),
    points: line.kind === "points" ? { show: true, size: 8, fill: color } : { show: false },
    value: (_, value) => (value == null ? "–" : (now() ?? line).format(value)),
  };
}

/** With no pointer over the chart the legend shows the newest step. */
function showNewest(chart: uPlot): void {
  const last = chart.data[0].length - 1;
  if (chart.legend.idx == null && last >= 0) chart.setLegend({ idx: last }, false);
}

function padded(low: number | null, high: number | null, fromZero: boolean): [number, number] {
  if (low === null || high === null || !Number.isFinite(low) || !Number.isFinite(high)) return [0, 1];
  if (fromZero) return [0, high <= 0 ? 1 : high * 1.08];
  const margin = Math.max((high - low) * 0.06, Math.abs(high) * 1e-3, 1e-6);
  return [low - margin, high + margin];
}

function drawMarks(chart: uPlot, marks: number[], color: string): void {
  const { ctx, bbox } = chart;
  ctx.save();
  ctx.strokeStyle = color;
  ctx.setLineDash([2, 4]);
  ctx.beginPath();
  for (const step of marks) {
    const x = Math.round(chart.valToPos(step, "x", true));
    if (x < bbox.left || x > bbox.left + bbox.width) continue;
    ctx.moveTo(x, bbox.top);
    ctx.lineTo(x, bbox.top + bbox.height);
  }
  ctx.stroke();
  ctx.restore();
}
