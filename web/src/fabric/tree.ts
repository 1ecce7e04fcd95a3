/** The fabric as a tree: core, spine, leaf, island, node, slot; tiers that no node knows are left out. */

import type { NodeView } from "../api/queries";

export type Tier = "fabric" | "core" | "spine" | "leaf" | "island" | "node" | "slot";

export interface Domain {
  /** `leaf:l3`, of a slot `slot:n12/0`: the same after a refresh, so that it can stand in an address. */
  id: string;
  tier: Tier;
  /** Null: the nodes inside do not know theirs. */
  name: string | null;
  parent: Domain | null;
  children: Domain[];
  /** Slots are numbered through the tree in drawing order; this domain holds `first` to before `end`. */
  first: number;
  end: number;
  /** The same for nodes. */
  firstNode: number;
  endNode: number;
  /** Place in the drawing, in its own units; written by `layOut`. `head` is the strip for the name. */
  x: number;
  y: number;
  width: number;
  height: number;
  head: number;
}

export interface Tree {
  root: Domain;
  /** By number. */
  slots: Domain[];
  nodes: Domain[];
  byId: ReadonlyMap<string, Domain>;
}

const SWITCHES = ["core", "spine", "leaf"] as const;
type Switch = (typeof SWITCHES)[number];

/** What the shape of the tree hangs on: as long as this text is the same, so is the tree. */
export function shapeOf(nodes: readonly NodeView[]): string {
  return nodes
    .map(({ name, core, spine, leaf, island, islands, slots }) =>
      JSON.stringify([name, core, spine, leaf, island, Object.keys(islands).length > 0 ? islands : 0, slots.length]),
    )
    .join("\n");
}

export function growTree(nodes: readonly NodeView[]): Tree {
  const byId = new Map<string, Domain>();
  const tree: Tree = { root: domainOf("fabric", "", null), slots: [], nodes: [], byId };
  byId.set(tree.root.id, tree.root);
  const tiers = SWITCHES.filter((tier) => nodes.some((node) => node[tier] !== null));

  function domainOf(tier: Tier, name: string | null, parent: Domain | null): Domain {
    const wanted = `${tier}:${name ?? "?"}`;
    // An island may lie under two leaves, and every spine may have nodes whose leaf is not known.
    const id = byId.has(wanted) ? `${wanted}@${parent?.id}` : wanted;
    const domain: Domain = {
      id,
      tier,
      name,
      parent,
      children: [],
      first: 0,
      end: 0,
      firstNode: 0,
      endNode: 0,
      x: 0,
      y: 0,
      width: 0,
      height: 0,
      head: 0,
    };
    byId.set(id, domain);
    parent?.children.push(domain);
    return domain;
  }

  /** Numbers whatever `inside` adds to the tree as what `domain` holds. */
  function fill(domain: Domain, inside: () => void): void {
    domain.first = tree.slots.length;
    domain.firstNode = tree.nodes.length;
    inside();
    domain.end = tree.slots.length;
    domain.endNode = tree.nodes.length;
  }

  function grow(parent: Domain, among: readonly NodeView[], [tier, ...rest]: readonly Switch[]): void {
    fill(parent, () => {
      if (tier === undefined) growNodes(parent, among);
      else for (const [name, own] of grouped(among, (node) => node[tier])) grow(domainOf(tier, name, parent), own, rest);
    });
  }

  /** Nodes, those of an island that spans several inside that island. */
  function growNodes(parent: Domain, among: readonly NodeView[]): void {
    const wide = wideIslands(among);
    for (const [island, own] of grouped(among, (node) => (wide.has(node.island) ? node.island : null))) {
      const outer = island === null ? parent : domainOf("island", island, parent);
      const inside = () => {
        for (const node of own.toSorted((a, b) => natural(a.name, b.name))) growNode(outer, node);
      };
      if (outer === parent) inside();
      else fill(outer, inside);
    }
  }

  function growNode(parent: Domain, node: NodeView): void {
    const domain = domainOf("node", node.name, parent);
    fill(domain, () => {
      tree.nodes.push(domain);
      const islands: [string | null, NodeView["slots"]][] =
        Object.keys(node.islands).length === 0
          ? [[null, node.slots]]
          : grouped(node.slots, ({ index }) => node.islands[index] ?? null);
      for (const [island, slots] of islands) {
        const outer = islands.length > 1 ? domainOf("island", island, domain) : domain;
        const inside = () => {
          for (const { index } of slots) growSlot(outer, node.name, index);
        };
        if (outer === domain) inside();
        else fill(outer, inside);
      }
    });
  }

  function growSlot(parent: Domain, node: string, index: number): void {
    const slot = domainOf("slot", `${node}/${index}`, parent);
    slot.first = tree.slots.push(slot) - 1;
    slot.end = slot.first + 1;
    slot.firstNode = tree.nodes.length - 1;
    slot.endNode = tree.nodes.length;
  }

  grow(tree.root, nodes, tiers);
  return tree;
}

/** Islands that more than one of `nodes` lies in. */
function wideIslands(nodes: readonly NodeView[]): Set<string | null> {
  const seen = new Set<string>();
  const wide = new Set<string | null>();
  for (const { island } of nodes) {
    if (island === null) continue;
    if (seen.has(island)) wide.add(island);
    seen.add(island);
  }
  return wide;
}

/** Groups by name in natural order (`n2` before `n10`), the unknown last. */
function grouped<T>(items: readonly T[], nameOf: (item: T) => string | null): [string | null, T[]][] {
  const groups = new Map<string | null, T[]>();
  for (const item of items) {
    const name = nameOf(item);
    const group = groups.get(name);
    if (group === undefined) groups.set(name, [item]);
    else group.push(item);
  }
  return [...groups].toSorted(([a], [b]) => {
    if (a === null || b === null) return a === b ? 0 : a === null ? 1 : -1;
    return natural(a, b);
  });
}

const natural = new Intl.Collator("en", { numeric: true }).compare;

/** `leaf l3`, `slot 0`, `leaf not known`, `Fabric`. */
export function titleOf({ tier, name, parent }: Domain): string {
  if (tier === "fabric") return "Fabric";
  if (tier === "slot") return `slot ${name?.slice(name.lastIndexOf("/") + 1)}`;
  if (name === null) return parent?.tier === "node" ? "no island" : `${tier} not known`;
  return `${tier} ${name}`;
}

/** From the fabric down to `domain`. */
export function pathTo(domain: Domain): Domain[] {
  return domain.parent === null ? [domain] : [...pathTo(domain.parent), domain];
}

/** Everything of the tier of `domain`, in drawing order. */
export function alike(tree: Tree, { tier }: Domain): Domain[] {
  if (tier === "slot") return tree.slots;
  if (tier === "node") return tree.nodes;
  return [...tree.byId.values()].filter((other) => other.tier === tier);
}
