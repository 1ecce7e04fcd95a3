/** Domains in sentences, for the detail line and for those who cannot see the drawing. */

import { count, plural } from "../format/numbers";
import type { Counts } from "./occupancy";
import { type Domain, pathTo, titleOf, type Tree } from "./tree";

/** `128 slots on 16 nodes: 96 held by 3 jobs, 30 free, 2 out of use`. */
export function countsInWords({ firstNode, endNode, tier }: Domain, { slots, held, free, out, jobs }: Counts): string {
  const where = tier === "node" || tier === "slot" ? "" : ` on ${plural(endNode - firstNode, "node")}`;
  const parts = [
    held > 0 ? `${count(held)} held by ${plural(jobs.length, "job")}` : null,
    `${count(free)} free`,
    out > 0 ? `${count(out)} out of use` : null,
  ];
  return `${plural(slots, "slot")}${where}: ${parts.filter(Boolean).join(", ")}`;
}

/** `core c0 · spine s1 · leaf l3 · node n12`, without the fabric itself. */
export function placeInWords(domain: Domain): string {
  return pathTo(domain).slice(1).map(titleOf).join(" · ");
}

/** Problems that name a node of `domain`, or the domain itself. */
export function problemsOf(domain: Domain, tree: Tree, problems: readonly string[]): string[] {
  const nodes = tree.nodes.slice(domain.firstNode, domain.endNode);
  const names = new Set(nodes.map(({ name }) => name));
  if (domain.tier !== "node" && domain.tier !== "slot") names.add(domain.name);
  return problems.filter((problem) => problem.split(/[\s,:;()]+/).some((word) => names.has(word.replace(/\.$/, ""))));
}
