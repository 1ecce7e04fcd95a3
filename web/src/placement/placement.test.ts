import { describe, expect, it } from "vitest";
import type { RankView } from "../api/queries";
import { degrees, position } from "./axes";
import { cellAt, type Drawing, layOut, neighbour } from "./layout";
import { arrange, type Domain, type Place } from "./tree";

/** `leaves` leaves of `nodes` nodes of `slots` slots; `island` names the island of a slot. */
function places(
  leaves: number,
  nodes: number,
  slots: number,
  island: (node: number, slot: number) => string | null = (node) => `i${node}`,
): Place[] {
  return Array.from({ length: leaves * nodes * slots }, (_, i) => {
    const node = Math.floor(i / slots);
    return { leaf: `l${Math.floor(node / nodes)}`, node: `n${node}`, index: i % slots, island: island(node, i % slots) };
  });
}

function labels(domains: Domain[]): unknown[] {
  return domains.map(({ label, children, slots }) => (children.length > 0 ? [label, labels(children)] : [label, slots]));
}

describe("arrange", () => {
  it("names node and island in one box where the node is one island", () => {
    expect(labels(arrange(places(1, 2, 2)))).toEqual([
      ["leaf l0", [["n0 · island i0", [0, 1]], ["n1 · island i1", [2, 3]]]],
    ]);
  });

  it("puts small islands inside their node", () => {
    const tree = arrange(places(1, 1, 4, (_, slot) => `p${slot >> 1}`));
    expect(labels(tree)).toEqual([["leaf l0", [["n0", [["island p0", [0, 1]], ["island p1", [2, 3]]]]]]]);
  });

  it("puts nodes inside an island that spans them", () => {
    const tree = arrange(places(1, 2, 1, () => "rack"));
    expect(labels(tree)).toEqual([["leaf l0", [["island rack", [["n0", [0]], ["n1", [1]]]]]]]);
  });

  it("sorts by number, unknown leaves last, and takes no unknown tier for a match", () => {
    const unknown = { node: "m", index: 0, island: null, leaf: null };
    const tree = arrange([unknown, { ...unknown, leaf: "l10" }, { ...unknown, leaf: "l2" }]);
    expect(tree.map(({ label }) => label)).toEqual(["leaf l2", "leaf l10", "leaf not known"]);
  });
});

function overlaps(drawing: Drawing): number {
  const seen = new Set(drawing.cells.map(({ x, y }) => `${x} ${y}`));
  return drawing.cells.length - seen.size;
}

describe("layOut", () => {
  it.each([
    [340, 2, 2, 2],
    [640, 2, 2, 8],
    [640, 80, 16, 8],
    [200, 3, 2, 16],
  ])("keeps %d px for %d leaves of %d nodes of %d slots", (width, leaves, nodes, slots) => {
    const all = places(leaves, nodes, slots);
    const drawing = layOut(arrange(all), all.length, width);
    expect(drawing.cells.map(({ slot }) => slot).toSorted((a, b) => a - b)).toEqual(all.map((_, i) => i));
    expect(overlaps(drawing)).toBe(0);
    const { side, height, cells, boxes } = drawing;
    expect(cells.filter(({ x, y }) => x < 0 || x + side > width || y < 0 || y + side > height)).toEqual([]);
    expect(boxes.filter((box) => box.x + box.width > width || box.y + box.height > height)).toEqual([]);
  });

  it("finds the cell under a point and none beside it", () => {
    const all = places(2, 2, 2);
    const drawing = layOut(arrange(all), all.length, 600);
    drawing.cells.forEach(({ x, y }, i) => expect(cellAt(drawing, x + 1, y + 1)).toBe(i));
    expect(cellAt(drawing, 0, 0)).toBe(-1);
  });

  it("walks by arrow keys and stays at the edges", () => {
    const all = places(1, 1, 8);
    const drawing = layOut(arrange(all), all.length, 600); // two rows of four
    expect(neighbour(drawing, 0, "right")).toBe(1);
    expect(neighbour(drawing, 1, "down")).toBe(5);
    expect(neighbour(drawing, 5, "up")).toBe(1);
    expect(neighbour(drawing, 0, "left")).toBe(0);
    expect(neighbour(drawing, 0, "up")).toBe(0);
    expect(neighbour(drawing, 3, "last")).toBe(7);
  });
});

function rank(tp: number, pp: number): RankView {
  return {
    rank: tp + 2 * pp,
    coordinates: { tp, cp: 0, pp, dp: 0 },
    node: "n0",
    index: 0,
    island: null,
    leaf: null,
    pid: null,
    device: null,
  };
}

describe("axes", () => {
  it("shows axes above degree one, stages first, in words", () => {
    const ranks = [rank(0, 0), rank(1, 0), rank(0, 1), rank(1, 1)];
    const found = degrees(ranks);
    expect(found).toEqual([
      { axis: "pp", degree: 2 },
      { axis: "tp", degree: 2 },
    ]);
    expect(position(rank(1, 0), found)).toBe("stage 0, tensor rank 1");
  });
});
