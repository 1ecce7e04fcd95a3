import { useComputedColorScheme } from "@mantine/core";
import { type KeyboardEvent, type PointerEvent, useEffect, useLayoutEffect, useMemo, useRef, useState } from "react";
import type { FindingView, HeatMapView } from "../../../api/queries";
import { count } from "../../../format/numbers";
import { exactly } from "../../../format/time";
import { againstPeers, decode, type Grid, highest, joined, type Plane } from "./heat";
import styles from "./health.module.css";
import { type Cell, cellAt, gradient, layOutHeat, paint, STRONGEST } from "./paint";

interface HeatMapProps {
  shown: HeatMapView;
  plane: Plane;
  /** Framed in the drawing. */
  found: readonly FindingView[];
  nodes: ReadonlyMap<number, string>;
  stages: ReadonlyMap<number, number>;
}

/** Room for the names of the rows, and a pixel of each column at least. */
const GUTTER = 56;
const MOVES: Partial<Record<string, readonly [rows: number, columns: number]>> = {
  ArrowLeft: [0, -1],
  ArrowRight: [0, 1],
  ArrowUp: [-1, 0],
  ArrowDown: [1, 0],
};

function clamp(value: number, size: number): number {
  return Math.min(Math.max(value, 0), size - 1);
}

/** Ranks as rows over steps: what each computed against its peers, or how long it waited. */
export function HeatMap({ shown, plane, found, nodes, stages }: HeatMapProps) {
  const frame = useRef<HTMLDivElement>(null);
  const canvas = useRef<HTMLCanvasElement>(null);
  const [available, setAvailable] = useState(0);
  const [active, setActive] = useState<Cell | null>(null);
  const scheme = useComputedColorScheme("light");
  const { ranks_a_row: ranksARow } = shown;
  const whole = useMemo(() => decode(shown), [shown]);
  const grid = useMemo(() => joined(whole, Math.max(1, available - GUTTER)), [whole, available]);
  const groups = useMemo(
    () => Array.from({ length: grid.rows }, (_, row) => stages.get(row * ranksARow) ?? 0),
    [grid.rows, stages, ranksARow],
  );
  const ratios = useMemo(
    () => againstPeers(grid.planes[plane === "wait" ? "compute" : plane], grid.columns.length, groups),
    [grid, plane, groups],
  );
  const most = useMemo(() => highest(grid.planes.wait), [grid]);
  const drawing = useMemo(
    () => (available === 0 ? null : layOutHeat(grid.rows, grid.columns.length, available)),
    [grid, available],
  );

  useLayoutEffect(() => {
    const element = frame.current;
    if (element === null) return;
    const measure = () => setAvailable(element.clientWidth);
    measure();
    const resize = new ResizeObserver(measure);
    resize.observe(element);
    return () => resize.disconnect();
  }, []);

  useEffect(() => {
    if (canvas.current === null || drawing === null) return;
    const values = plane === "wait" ? grid.planes.wait : ratios;
    paint({ canvas: canvas.current, drawing, grid, plane, values, most, found, ranksARow, active, scheme });
  }, [drawing, grid, plane, ratios, most, found, ranksARow, active, scheme]);

  const onKeyDown = (event: KeyboardEvent) => {
    if (event.key === "Escape") setActive(null);
    const move = MOVES[event.key];
    if (move === undefined) return;
    event.preventDefault();
    const from = active ?? { row: 0, column: grid.columns.length - 1 };
    const next = { row: clamp(from.row + move[0], grid.rows), column: clamp(from.column + move[1], grid.columns.length) };
    setActive(next);
    if (drawing !== null) {
      frame.current?.scrollTo({ top: next.row * drawing.row - frame.current.clientHeight / 2 });
    }
  };

  const at = (event: PointerEvent) => {
    const bounds = canvas.current?.getBoundingClientRect();
    if (drawing === null || bounds === undefined) return null;
    return cellAt(drawing, grid, event.clientX - bounds.left, event.clientY - bounds.top);
  };

  const [first, last] = [grid.columns[0]?.[0] ?? 0, grid.columns.at(-1)?.[1] ?? 0];
  return (
    <>
      <div
        ref={frame}
        className={styles.frame}
        role="application"
        aria-label={`${plane === "wait" ? "Waiting" : "Computing"} of ${count(shown.ranks)} ranks, steps ${first} to ${last}. Arrow keys go from cell to cell.`}
        // oxlint-disable-next-line jsx-a11y/no-noninteractive-tabindex -- a composite widget with keys of its own
        tabIndex={0}
        onKeyDown={onKeyDown}
        onFocus={() => active === null && setActive({ row: 0, column: grid.columns.length - 1 })}
        onPointerMove={(event) => event.pointerType === "mouse" && setActive(at(event))}
        onPointerDown={(event) => setActive(at(event))}
        onPointerLeave={(event) => event.pointerType === "mouse" && setActive(null)}
      >
        <canvas ref={canvas} className={styles.canvas} />
      </div>
      <div className={styles.legend}>
        <span>{plane === "wait" ? "no waiting" : `${(1 / STRONGEST).toFixed(2)}×`}</span>
        <span className={styles.scale} style={{ backgroundImage: gradient(plane, scheme) }} />
        <span>{plane === "wait" ? exactly(most) : `${STRONGEST}× its peers`}</span>
        {found.length > 0 && <span className={styles.framed}>found slow</span>}
      </div>
      <p className={styles.detail} aria-live="polite">
        {active === null ? (
          <span className="dim">
            Point at a cell, or move with the arrow keys, to read it. Who computes longest is the cause; who waits least too.
          </span>
        ) : (
          sentenceOf({ grid, active, ratio: ratios[active.row * grid.columns.length + active.column], plane, ranksARow, nodes })
        )}
      </p>
      <p className="dim">
        {joinedWords(grid, whole)}
        {ranksARow > 1 && ` A row shows ${ranksARow} ranks: the longest computing and the shortest waiting of them.`}
      </p>
    </>
  );
}

interface Read {
  grid: Grid;
  active: Cell;
  ratio: number | undefined;
  plane: Plane;
  ranksARow: number;
  nodes: ReadonlyMap<number, string>;
}

function sentenceOf({ grid, active, ratio, plane, ranksARow, nodes }: Read): string {
  const [first, last, steps] = grid.columns[active.column] ?? [0, 0, 0];
  const rank = active.row * ranksARow;
  const on = ranksARow === 1 && nodes.has(rank) ? ` on ${nodes.get(rank)}` : "";
  const who = ranksARow === 1 ? `Rank ${rank}${on}` : `Ranks ${rank} to ${rank + ranksARow - 1}`;
  const when = first === last ? `step ${first}` : `steps ${first} to ${last} (${steps} measured)`;
  const at = active.row * grid.columns.length + active.column;
  const compute = grid.planes[plane === "slowest" ? "slowest" : "compute"][at] ?? Number.NaN;
  if (Number.isNaN(compute)) return `${who}, ${when}: not measured`;
  const wait = grid.planes.wait[at] ?? Number.NaN;
  const against = ratio === undefined || Number.isNaN(ratio) ? "" : `, ${ratio.toFixed(2)} times its peers`;
  const longest = plane === "slowest" ? "at the longest " : "";
  const waits = Number.isNaN(wait) ? "" : `; waits ${exactly(wait)}`;
  return `${who}, ${when}: computes ${longest}${exactly(compute)}${against}${waits}`;
}

function joinedWords(grid: Grid, whole: Grid): string {
  const most = Math.max(0, ...grid.columns.map(([, , steps]) => steps));
  if (most <= 1) return "A column is a step.";
  const narrow = grid.columns.length < whole.columns.length ? " on a screen this wide" : "";
  return `A column is the mean of up to ${count(most)} steps${narrow}; “slowest step” shows the longest of them.`;
}
