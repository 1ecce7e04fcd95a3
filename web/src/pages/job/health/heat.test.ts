import { describe, expect, it } from "vitest";
import type { HeatMapView } from "../../../api/queries";
import { againstPeers, columnOf, decode, highest, joined } from "./heat";
import { heatColor, layOutHeat } from "./paint";

function cells(values: number[]): string {
  return btoa(String.fromCharCode(...values.flatMap((value) => [value & 255, value >> 8])));
}

// Two ranks. Block one: steps 1 and 2; block two: steps 3 to 6 as one column. Units of 10 ms.
const SHOWN: HeatMapView = {
  attempt: 1,
  ranks: 2,
  ranks_a_row: 1,
  blocks: [
    {
      columns: [[1, 1, 1], [2, 2, 1]],
      scale_s: { compute: 0.01, slowest: 0.01, wait: 0.01 },
      cells: { compute: cells([10, 20, 30, 65_535]), slowest: cells([10, 20, 30, 65_535]), wait: cells([0, 1, 2, 3]) },
    },
    {
      columns: [[3, 6, 4]],
      scale_s: { compute: 0.02, slowest: 0.02, wait: 0.01 },
      cells: { compute: cells([300, 5]), slowest: cells([400, 6]), wait: cells([4, 5]) },
    },
  ],
};

function rounded(values: Float32Array): number[] {
  return [...values].map((value) => Number(value.toFixed(3)));
}

describe("the grid", () => {
  it("has the blocks side by side, in seconds", () => {
    const grid = decode(SHOWN);
    expect(grid.rows).toBe(2);
    expect(grid.columns).toEqual([[1, 1, 1], [2, 2, 1], [3, 6, 4]]);
    expect(rounded(grid.planes.compute)).toEqual([0.1, 0.2, 6, 0.3, Number.NaN, 0.1]);
    expect(rounded(grid.planes.wait)).toEqual([0, 0.01, 0.04, 0.02, 0.03, 0.05]);
  });
  it("joins columns by their steps when there are more than fit, and keeps the slowest step", () => {
    const grid = joined(decode(SHOWN), 1);
    expect(grid.columns).toEqual([[1, 6, 6]]);
    expect(rounded(grid.planes.compute)).toEqual([(0.1 + 0.2 + 4 * 6) / 6, (0.3 + 4 * 0.1) / 5].map((v) => Number(v.toFixed(3))));
    expect(rounded(grid.planes.slowest)).toEqual([8, 0.3]);
    expect(joined(decode(SHOWN), 3).columns).toHaveLength(3);
  });
  it("finds columns by step", () => {
    expect([1, 2, 4, 9].map((step) => columnOf(decode(SHOWN).columns, step))).toEqual([0, 1, 2, 2]);
  });
});

describe("against peers", () => {
  it("a cell is held against the middle of its column and group", () => {
    const values = new Float32Array([1, 2, 1, 2, 1.5, 2, 8, 2]); // four rows, two columns
    expect(rounded(againstPeers(values, 2, [0, 0, 0, 0]))).toEqual([0.8, 1, 0.8, 1, 1.2, 1, 6.4, 1]);
    expect(rounded(againstPeers(values, 2, [0, 0, 0, 1]))).toEqual([1, 1, 1, 1, 1.5, 1, 1, 1]);
  });
  it("unknown cells stay unknown", () => {
    expect(rounded(againstPeers(new Float32Array([Number.NaN, 2, Number.NaN]), 1, [0, 0, 1]))).toEqual([Number.NaN, 1, Number.NaN]);
    expect(highest(new Float32Array([Number.NaN]))).toBe(0);
  });
});

describe("the drawing", () => {
  it("is as wide as the page and as tall as its rows need", () => {
    expect(layOutHeat(8, 300, 900)).toEqual({ width: 900, height: 8 * 18 + 22, row: 18, gutter: 56 });
    expect(layOutHeat(1024, 300, 900).row).toBe(2);
    expect(layOutHeat(100, 300, 900).row).toBe(4);
  });
  it("has a neutral colour for what is like its peers, and stronger ones for what is not", () => {
    for (const scheme of ["light", "dark"] as const) {
      const [like, slow, slower] = [1, 1.2, 1.6].map((ratio) => heatColor("compute", ratio, 0, scheme));
      expect(like).not.toEqual(slow);
      expect(slow).not.toEqual(slower);
      expect(heatColor("compute", 9, 0, scheme)).toEqual(heatColor("compute", 1.6, 0, scheme));
      expect(heatColor("wait", 0, 2, scheme)).not.toEqual(heatColor("wait", 2, 2, scheme));
    }
  });
});
