/** Slots arranged by where they are: leaf, then node and island, whichever of the two holds the other. */

export interface Place {
  node: string;
  index: number;
  island: string | null;
  leaf: string | null;
}

export type Tier = "leaf" | "node" | "island";

export interface Domain {
  tier: Tier;
  /** Name for people; a node that is one island, or a part of one, names both. */
  label: string;
  /** Exactly one of the two is filled. */
  children: Domain[];
  /** Indices into the list of places. */
  slots: number[];
}

/** Leaves in the order of their names; slots of a node in the order of their index. */
export function arrange(places: readonly Place[]): Domain[] {
  const all = places.map((_, i) => i);
  return grouped(all, (i) => places[i]?.leaf ?? null).map(([leaf, slots]) => ({
    tier: "leaf",
    label: leaf === null ? "leaf not known" : `leaf ${leaf}`,
    ...below(slots, places),
  }));
}

function below(slots: number[], places: readonly Place[]): { children: Domain[]; slots: number[] } {
  const wide = wideIslands(slots, places);
  const outer = (i: number) => {
    const island = places[i]?.island ?? null;
    return island !== null && wide.has(island) ? island : null;
  };
  const children = grouped(slots, outer).flatMap(([island, inside]) => {
    const nodes = grouped(inside, (i) => places[i]?.node ?? null).map(([node, own]) =>
      nodeDomain(node ?? "", own, places, wide),
    );
    if (island === null) return nodes;
    return [{ tier: "island" as const, label: `island ${island}`, children: nodes, slots: [] }];
  });
  return { children, slots: [] };
}

/** Islands that hold slots of more than one node. */
function wideIslands(among: readonly number[], places: readonly Place[]): Set<string> {
  const nodeOf = new Map<string, string>();
  const wide = new Set<string>();
  for (const slot of among) {
    const place = places[slot];
    if (place?.island == null) continue;
    const first = nodeOf.get(place.island);
    if (first === undefined) nodeOf.set(place.island, place.node);
    else if (first !== place.node) wide.add(place.island);
  }
  return wide;
}

function nodeDomain(node: string, slots: number[], places: readonly Place[], wide: ReadonlySet<string>): Domain {
  const ordered = slots.toSorted((a, b) => (places[a]?.index ?? 0) - (places[b]?.index ?? 0));
  const islands = grouped(ordered, (i) => places[i]?.island ?? null);
  if (islands.length > 1) {
    const children = islands.map(([island, own]) => ({
      tier: "island" as const,
      label: island === null ? "no island" : `island ${island}`,
      children: [],
      slots: own,
    }));
    return { tier: "node", label: node, children, slots: [] };
  }
  const island = islands[0]?.[0];
  // An island that spans nodes has a box of its own around them.
  const named = island == null || wide.has(island) ? node : `${node} · island ${island}`;
  return { tier: "node", label: named, children: [], slots: ordered };
}

/** Groups by key in natural order of the keys (`n2` before `n10`); unknown ones last. */
function grouped(slots: number[], key: (slot: number) => string | null): [string | null, number[]][] {
  const groups = new Map<string | null, number[]>();
  for (const slot of slots) {
    const name = key(slot);
    const group = groups.get(name);
    if (group === undefined) groups.set(name, [slot]);
    else group.push(slot);
  }
  return [...groups].toSorted(([a], [b]) => {
    if (a === null || b === null) return a === b ? 0 : a === null ? 1 : -1;
    return NATURAL.compare(a, b);
  });
}

const NATURAL = new Intl.Collator("en", { numeric: true });
