import type { Work } from "../api/queries";
import { oklch, type Rgb, type Scheme } from "../theme/color";

const HUES: Record<Work, number> = { forward: 250, backward: 165, "backward-input": 165, "backward-weight": 75 };
const LIGHTNESS: Record<Work, number> = { forward: 0.56, backward: 0.68, "backward-input": 0.68, "backward-weight": 0.8 };

/** Colour of a work; the stages that a rank holds beside its first are lighter. Works differ in lightness too. */
export function workColor(work: Work, chunk: number, scheme: Scheme): Rgb {
  const lighter = Math.min(chunk, 3) * 0.09;
  const base = LIGHTNESS[work] + (scheme === "light" ? 0 : 0.02);
  return oklch(Math.min(0.93, base + lighter), 0.11 - 0.02 * Math.min(chunk, 3), HUES[work]);
}
