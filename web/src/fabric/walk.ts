/** From one domain to the next by arrow keys. */

import { alike, type Domain, type Tree } from "./tree";

export type Step = "left" | "right" | "up" | "down" | "first" | "last";

export const KEYS: Partial<Record<string, Step>> = {
  ArrowLeft: "left",
  ArrowRight: "right",
  ArrowUp: "up",
  ArrowDown: "down",
  Home: "first",
  End: "last",
};

/** The domain of the same tier that a key leads to; the same one where there is none. */
export function walk(tree: Tree, from: Domain, step: Step): Domain {
  const among = alike(tree, from);
  if (step === "first") return among[0] ?? from;
  if (step === "last") return among.at(-1) ?? from;
  if (step === "left" || step === "right") return among[among.indexOf(from) + (step === "left" ? -1 : 1)] ?? from;
  const sign = step === "down" ? 1 : -1;
  const edge = step === "down" ? from.y + from.height : from.y;
  let best = from;
  let least = Infinity;
  for (const other of among) {
    const gap = sign * ((step === "down" ? other.y : other.y + other.height) - edge);
    if (gap < 0 || other === from) continue;
    // Nearest row first, nearest column within it.
    const distance = gap * 4 + Math.abs(other.x + other.width / 2 - from.x - from.width / 2);
    if (distance < least) [best, least] = [other, distance];
  }
  return best;
}
