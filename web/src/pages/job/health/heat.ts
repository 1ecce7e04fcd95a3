import type { HeatMapView } from "../../../api/queries";

export type Plane = "compute" | "slowest" | "wait";
/** First step, last step, number of measured steps. */
export type Column = readonly [first: number, last: number, steps: number];

/** Seconds by plane, row by row; NaN where nothing was measured. */
export interface Grid {
  rows: number;
  columns: readonly Column[];
  planes: Record<Plane, Float32Array>;
}

const UNKNOWN = 65_535;
const PLANES: readonly Plane[] = ["compute", "slowest", "wait"];

/** The blocks of an answer side by side. */
export function decode(shown: HeatMapView): Grid {
  const rows = Math.ceil(shown.ranks / shown.ranks_a_row);
  const columns = shown.blocks.flatMap((block) => block.columns as unknown as Column[]);
  const planes = Object.fromEntries(
    PLANES.map((plane) => {
      const cells = new Float32Array(rows * columns.length).fill(Number.NaN);
      let left = 0;
      for (const block of shown.blocks) {
        const wide = block.columns.length;
        const packed = new DataView(bytesOf(block.cells[plane] ?? "").buffer);
        const scale = block.scale_s[plane] ?? 0;
        for (let row = 0; row < rows; row += 1) {
          for (let column = 0; column < wide; column += 1) {
            const at = 2 * (row * wide + column);
            const value = at + 1 < packed.byteLength ? packed.getUint16(at, true) : UNKNOWN;
            if (value !== UNKNOWN) cells[row * columns.length + left + column] = value * scale;
          }
        }
        left += wide;
      }
      return [plane, cells];
    }),
  ) as Record<Plane, Float32Array>;
  return { rows, columns, planes };
}

function bytesOf(base64: string): Uint8Array<ArrayBuffer> {
  return Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0));
}

/** The grid with at most `most` columns. Neighbours are joined: means by their steps, of `slowest` the largest. */
export function joined(grid: Grid, most: number): Grid {
  const every = Math.ceil(grid.columns.length / Math.max(1, most));
  if (every <= 1) return grid;
  const wide = Math.ceil(grid.columns.length / every);
  const columns = Array.from({ length: wide }, (_, i): Column => {
    const part = grid.columns.slice(i * every, (i + 1) * every);
    return [part[0]?.[0] ?? 0, part.at(-1)?.[1] ?? 0, part.reduce((sum, [, , steps]) => sum + steps, 0)];
  });
  const planes = Object.fromEntries(
    PLANES.map((plane) => {
      const cells = new Float32Array(grid.rows * wide).fill(Number.NaN);
      for (let row = 0; row < grid.rows; row += 1) {
        for (let i = 0; i < wide; i += 1) {
          let sum = 0;
          let weight = 0;
          let largest = Number.NaN;
          for (let at = i * every; at < Math.min((i + 1) * every, grid.columns.length); at += 1) {
            const value = grid.planes[plane][row * grid.columns.length + at] ?? Number.NaN;
            if (Number.isNaN(value)) continue;
            const steps = grid.columns[at]?.[2] ?? 1;
            sum += steps * value;
            weight += steps;
            largest = Number.isNaN(largest) ? value : Math.max(largest, value);
          }
          if (weight > 0) cells[row * wide + i] = plane === "slowest" ? largest : sum / weight;
        }
      }
      return [plane, cells];
    }),
  ) as Record<Plane, Float32Array>;
  return { rows: grid.rows, columns, planes };
}

/** Each cell over the middle one of its column among rows of the same group. `groups`: a number for each row. */
export function againstPeers(cells: Float32Array, wide: number, groups: readonly number[]): Float32Array {
  const found = new Float32Array(cells.length).fill(Number.NaN);
  const members = new Map<number, number[]>();
  groups.forEach((group, row) => members.set(group, [...(members.get(group) ?? []), row]));
  for (const rows of members.values()) {
    const column = new Float32Array(rows.length);
    for (let at = 0; at < wide; at += 1) {
      let known = 0;
      for (const row of rows) {
        const value = cells[row * wide + at] ?? Number.NaN;
        if (!Number.isNaN(value)) column[known++] = value;
      }
      if (known === 0) continue;
      const sorted = column.slice(0, known).toSorted();
      const middle = ((sorted[(known - 1) >> 1] ?? 0) + (sorted[known >> 1] ?? 0)) / 2;
      if (middle <= 0) continue;
      for (const row of rows) found[row * wide + at] = (cells[row * wide + at] ?? Number.NaN) / middle;
    }
  }
  return found;
}

/** The value that all but one cell in a hundred stay below; 0 when nothing is known. */
export function highest(cells: Float32Array): number {
  const known = cells.filter((value) => !Number.isNaN(value)).toSorted();
  return known[Math.min(known.length - 1, Math.floor(0.99 * known.length))] ?? 0;
}

/** Place of a column that holds `step`, or of the nearest. */
export function columnOf(columns: readonly Column[], step: number): number {
  const after = columns.findIndex(([, last]) => last >= step);
  return after < 0 ? columns.length - 1 : after;
}
