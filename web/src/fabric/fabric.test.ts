import { describe, expect, it } from "vitest";
import type { NodeView } from "../api/queries";
import { type Box, clamped, fit, onScreen, pan, zoom } from "./camera";
import { layOut } from "./layout";
import { countsOf, occupancyOf } from "./occupancy";
import { domainAt, isWhole, sceneOf, sizeOf } from "./scene";
import { type Domain, growTree, pathTo, shapeOf, titleOf, type Tree } from "./tree";
import { walk } from "./walk";
import { countsInWords, placeInWords, problemsOf } from "./words";

type Some = Partial<NodeView> & { slotCount?: number };

function node(name: string, { slotCount = 2, ...some }: Some = {}): NodeView {
  const slots = Array.from({ length: slotCount }, (_, index) => ({ index, job_id: null, job_name: null, rank: null }));
  const healthy = { suspect: false, rails: {}, weak_pairs: [], partitioned: [] };
  const nowhere = { island: null, islands: {}, leaf: null, spine: null, core: null };
  return { name, alive: true, schedulable: true, cordon: null, ...nowhere, accelerator: null, cpus: null, ...healthy, slots, last_seen: "", ...some };
}

/** Titles of a domain and of what is inside, without slots. */
function outline(domain: Domain): unknown {
  const inner = domain.children.filter(({ tier }) => tier !== "slot").map(outline);
  return inner.length > 0 ? [titleOf(domain), ...inner] : titleOf(domain);
}

/** Eight slots a node, sixteen nodes a leaf, ten leaves a spine. */
function large(nodes: number): NodeView[] {
  return Array.from({ length: nodes }, (_, i) => {
    const leaf = Math.floor(i / 16);
    return node(`g${i}`, { slotCount: 8, leaf: `l${leaf}`, spine: `s${Math.floor(leaf / 10)}`, core: "c0" });
  });
}

const DESK = { width: 1400, height: 560 };
const PHONE = { width: 340, height: 400 };

function drawn(tree: Tree, nodes: NodeView[], at: Domain, screen: { width: number; height: number }): number {
  const look = { occupancy: occupancyOf(tree, nodes), highlight: null };
  return sizeOf(sceneOf(tree, look, fit(at, screen), screen));
}

describe("growTree", () => {
  it("goes from core to slot, in natural order, the unknown last", () => {
    const nodes = [
      node("n10", { core: "c0", spine: "s0", leaf: "l10" }),
      node("n2", { core: "c0", spine: "s0", leaf: "l2" }),
      node("n1", { core: "c0", spine: "s0", leaf: "l2" }),
      node("x", { core: "c0" }),
    ];
    expect(outline(growTree(nodes).root)).toEqual([
      "Fabric",
      [
        "core c0",
        ["spine s0", ["leaf l2", "node n1", "node n2"], ["leaf l10", "node n10"]],
        ["spine not known", ["leaf not known", "node x"]],
      ],
    ]);
  });

  it("leaves out tiers that no node knows", () => {
    expect(outline(growTree([node("b"), node("a")]).root)).toEqual(["Fabric", "node a", "node b"]);
  });

  it("puts an island around its nodes or inside its node, whichever is the larger", () => {
    const rack = [node("a", { island: "rack" }), node("b", { island: "rack" }), node("c", { island: "own" })];
    expect(outline(growTree(rack).root)).toEqual(["Fabric", ["island rack", "node a", "node b"], "node c"]);
    const pairs = node("p", { slotCount: 4, islands: { "0": "p0", "1": "p0", "2": "p1", "3": "p1" } });
    expect(outline(growTree([pairs]).root)).toEqual(["Fabric", ["node p", "island p0", "island p1"]]);
  });

  it("numbers slots and nodes so that a domain holds a run of them", () => {
    const tree = growTree(large(320));
    const spine = tree.byId.get("spine:s1");
    expect([spine?.first, spine?.end, spine?.firstNode, spine?.endNode]).toEqual([1280, 2560, 160, 320]);
    expect(tree.slots.every((slot, i) => slot.first === i && slot.end === i + 1)).toBe(true);
    expect(tree.nodes.every((each, i) => each.firstNode === i)).toBe(true);
  });

  it("names every domain differently, the same after a refresh", () => {
    const twice = [node("a", { leaf: "l", spine: "s0", island: "i" }), node("b", { leaf: "l", spine: "s1", island: "i" })];
    const ids = [...growTree(twice).byId.keys()];
    expect(new Set(ids).size).toBe(2 + 2 + 2 + 4 + 1);
    expect([...growTree(twice.map((each) => ({ ...each, alive: false }))).byId.keys()]).toEqual(ids);
    expect(shapeOf(twice)).not.toBe(shapeOf(twice.slice(1)));
    expect(shapeOf(twice)).toBe(shapeOf(twice.map((each) => ({ ...each, alive: false, last_seen: "later" }))));
  });
});

function inside(inner: Box, outer: Box): boolean {
  return (
    inner.x >= outer.x &&
    inner.y >= outer.y &&
    inner.x + inner.width <= outer.x + outer.width + 1e-6 &&
    inner.y + inner.height <= outer.y + outer.height + 1e-6
  );
}

function apart(a: Box, b: Box): boolean {
  return a.x + a.width <= b.x || b.x + b.width <= a.x || a.y + a.height <= b.y || b.y + b.height <= a.y;
}

describe("layOut", () => {
  it.each([1, 7, 100, 200])("keeps %d nodes inside their domains and apart from each other", (count) => {
    const tree = layOut(growTree(large(count)), 2);
    const domains = [...tree.byId.values()];
    expect(domains.filter((domain) => domain.parent !== null && !inside(domain, domain.parent))).toEqual([]);
    for (const { children } of domains) {
      expect(children.filter((child, i) => children.slice(i + 1).some((other) => !apart(child, other)))).toEqual([]);
    }
  });

  it.each([
    [2, 0.55],
    [0.9, 0.55],
  ])("fills most of a screen of shape %d", (aspect, least) => {
    const { root } = layOut(growTree(large(1280)), aspect);
    const shape = root.width / root.height / aspect;
    expect(Math.min(shape, 1 / shape)).toBeGreaterThan(least);
  });
});

describe("work of a frame", () => {
  const nodes = large(1280); // 10,240 slots
  const tree = layOut(growTree(nodes), 2.1);
  const leaf = tree.byId.get("leaf:l40") ?? tree.root;

  it("is one rectangle a slot or less for the whole fabric", () => {
    expect(drawn(tree, nodes, tree.root, DESK)).toBeLessThan(10_240 + 1_280 + 80 + 200);
    expect(drawn(tree, nodes, tree.root, PHONE)).toBeLessThan(2 * (1_280 + 80 + 20));
  });

  it("falls with what is on the screen", () => {
    expect(drawn(tree, nodes, leaf, DESK)).toBeLessThan(1_000);
    expect(drawn(tree, nodes, leaf.children[0] ?? leaf, DESK)).toBeLessThan(150);
  });

  it("does not grow with slots that are too small to see", () => {
    const many = large(3_840); // 30,720 slots
    const huge = layOut(growTree(many), 2.1);
    expect(drawn(huge, many, huge.root, PHONE)).toBeLessThan(2 * (3_840 + 240 + 30));
  });
});

describe("camera", () => {
  const whole = { x: 0, y: 0, width: 1000, height: 500 };

  it("keeps the point under the pointer while zooming", () => {
    const screen = { width: 500, height: 250 };
    const before = fit(whole, screen);
    const at = { x: 100, y: 200 };
    const after = zoom(before, 3, at, whole, screen);
    expect(after.scale).toBeCloseTo(before.scale * 3);
    expect(at.x / after.scale + after.x).toBeCloseTo(at.x / before.scale + before.x);
    expect(at.y / after.scale + after.y).toBeCloseTo(at.y / before.scale + before.y);
  });

  it("neither zooms out beyond the whole nor pans off it", () => {
    const screen = { width: 500, height: 250 };
    const all = fit(whole, screen);
    expect(zoom(all, 0.1, { x: 0, y: 0 }, whole, screen)).toEqual(all);
    const close = zoom(all, 4, { x: 250, y: 125 }, whole, screen);
    expect(pan(close, 1e6, 1e6, whole, screen)).toMatchObject({ x: 0, y: 0 });
    expect(pan(close, -1e6, -1e6, whole, screen).x).toBeCloseTo(1000 - 500 / close.scale);
  });

  it("centres what is smaller than the screen", () => {
    const { x, scale } = clamped({ scale: 0.1, x: 300, y: 300 }, whole, { width: 500, height: 250 });
    expect(x).toBeCloseTo(500 - 250 / scale);
  });
});

describe("domainAt", () => {
  it("finds what is drawn at a point and nothing beside it", () => {
    const tree = layOut(growTree(large(32)), 2);
    const camera = fit(tree.root, DESK);
    const at = tree.slots.map((slot) => onScreen(camera, slot));
    expect(at.map(({ x, y }) => domainAt(tree, camera, { x: x + 1, y: y + 1 })?.id)).toEqual(tree.slots.map(({ id }) => id));
    expect(domainAt(tree, camera, { x: -1, y: -1 })).toBeNull();
  });

  it("stops where slots are drawn together", () => {
    const tree = layOut(growTree(large(1280)), 0.9);
    const camera = fit(tree.root, PHONE);
    const box = onScreen(camera, tree.nodes[700] ?? tree.root);
    const found = domainAt(tree, camera, { x: box.x + box.width / 2, y: box.y + box.height / 2 });
    expect(found).toBe(tree.nodes[700]);
    expect(isWhole(found ?? tree.root, camera)).toBe(true);
  });
});

describe("walk", () => {
  it("goes along a tier by arrow keys and stays at the edges", () => {
    const tree = layOut(growTree([node("n", { slotCount: 8 })]), 2); // two rows of four
    const [slots, first] = [tree.slots, tree.slots[0] as Domain];
    expect(walk(tree, first, "right")).toBe(slots[1]);
    expect(walk(tree, slots[1] as Domain, "down")).toBe(slots[5]);
    expect(walk(tree, slots[5] as Domain, "up")).toBe(slots[1]);
    expect(walk(tree, first, "left")).toBe(first);
    expect(walk(tree, first, "up")).toBe(first);
    expect(walk(tree, first, "last")).toBe(slots[7]);
  });

  it("crosses from leaf to leaf", () => {
    const tree = layOut(growTree(large(32)), 2);
    expect(walk(tree, tree.nodes[15] as Domain, "right")).toBe(tree.nodes[16]);
  });
});

function held(index: number, job_id: string | null): NodeView["slots"][number] {
  return { index, job_id, job_name: job_id, rank: index };
}

describe("in words", () => {
  const nodes = [
    node("n1", { leaf: "l0", slots: [held(0, "a"), held(1, "b")] }),
    node("n2", { leaf: "l0", slots: [held(0, "a"), held(1, null)] }),
    node("n10", { leaf: "l0", alive: false }),
  ];
  const tree = growTree(nodes);
  const leaf = tree.byId.get("leaf:l0") as Domain;

  it("counts what is held, free and out of use", () => {
    const occupancy = occupancyOf(tree, nodes);
    const counts = countsOf(leaf, occupancy);
    expect(counts).toEqual({ slots: 6, held: 3, free: 1, out: 2, jobs: [[0, 2], [1, 1]] });
    expect(countsInWords(leaf, counts)).toBe("6 slots on 3 nodes: 3 held by 2 jobs, 1 free, 2 out of use");
    expect(pathTo(leaf).map(titleOf)).toEqual(["Fabric", "leaf l0"]);
    expect(placeInWords(tree.slots[3] as Domain)).toBe("leaf l0 · node n2 · slot 1");
  });

  it("finds the problems of a domain by whole names", () => {
    const problems = ["Node n10 is lost.", "node n1: leaf l0 declared, l1 reported; l0 counts", "Ray is away."];
    expect(problemsOf(tree.nodes[0] as Domain, tree, problems)).toEqual([problems[1]]);
    expect(problemsOf(tree.nodes[2] as Domain, tree, problems)).toEqual([problems[0]]);
    expect(problemsOf(leaf, tree, problems)).toHaveLength(2);
  });
});
