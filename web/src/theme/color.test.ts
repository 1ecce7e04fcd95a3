import { describe, expect, it } from "vitest";
import { axisColors, contrast, css, DISTINCT, inkOn, jobColors, oklch, parseHex, type Rgb, type Scheme } from "./color";
import sheet from "./app.css?raw";

const TEXT = 4.5; // WCAG 2.2, 1.4.3
const GRAPHICS = 3; // WCAG 2.2, 1.4.11

describe("colour arithmetic", () => {
  it("agrees with the published figures", () => {
    expect(contrast([0, 0, 0], [255, 255, 255])).toBeCloseTo(21, 5);
    expect(contrast(parseHex("#777777"), parseHex("#fff"))).toBeCloseTo(4.48, 2); // WebAIM's example
    // CSS Color 4: #ff0000 is oklch(62.796% 0.25768 29.234).
    expect(oklch(0.62796, 0.25768, 29.234)).toEqual([255, 0, 0]);
    expect(oklch(1, 0, 0)).toEqual([255, 255, 255]);
  });
});

describe.each<Scheme>(["light", "dark"])("rank colours, %s", (scheme) => {
  it.each([1, 2, 4, DISTINCT, 9, 64, 1024])("carry readable numbers for %d values", (count) => {
    const colors = axisColors(count, scheme);
    expect(colors).toHaveLength(count);
    for (const color of colors) expect(contrast(color, inkOn(color))).toBeGreaterThanOrEqual(TEXT);
  });

  it("tell neighbouring jobs apart, however many there are", () => {
    const colors = jobColors(300, scheme);
    colors.slice(1).forEach((color, i) => {
      const distance = Math.hypot(...color.map((channel, part) => channel - (colors[i]?.[part] ?? 0)));
      expect(distance).toBeGreaterThan(60); // of 442 between black and white
    });
    for (const color of colors) expect(contrast(color, inkOn(color))).toBeGreaterThanOrEqual(TEXT);
  });

  it("differ from each other while there are few", () => {
    expect(new Set(axisColors(DISTINCT, scheme).map(css)).size).toBe(DISTINCT);
  });
});

/** Variables of one scheme in app.css. */
function variables(scheme: Scheme): Map<string, Rgb> {
  const block = new RegExp(`scheme="${scheme}"\\] \\{([^}]*)\\}`).exec(sheet)?.[1] ?? "";
  return new Map([...block.matchAll(/--([\w-]+): (#[0-9a-f]{6});/g)].map(([, name = "", hex = ""]) => [name, parseHex(hex)]));
}

describe.each<Scheme>(["light", "dark"])("theme, %s", (scheme) => {
  const colors = variables(scheme);
  const of = (name: string) => {
    const found = colors.get(name);
    if (found === undefined) throw new Error(`app.css has no --${name}`);
    return found;
  };
  const states = ["queued", "starting", "running", "recovering", "stopping", "succeeded", "failed", "cancelled"];

  it.each(states)("state %s reads on its chip, on the page and on its track", (state) => {
    const ink = of(`state-${state}`);
    expect(contrast(ink, of(`state-${state}-bg`))).toBeGreaterThanOrEqual(TEXT);
    expect(contrast(ink, of("surface"))).toBeGreaterThanOrEqual(TEXT);
    expect(contrast(ink, of("surface-3"))).toBeGreaterThanOrEqual(GRAPHICS);
  });

  it.each(["text", "dim", "link"])("%s reads on every surface", (ink) => {
    for (const surface of ["surface", "surface-2", "surface-3"]) {
      expect(contrast(of(ink), of(surface))).toBeGreaterThanOrEqual(TEXT);
    }
  });

  it.each(["curve-loss", "curve-held-back", "curve-unigram", "curve-throughput", "line-strong"])("%s is visible", (ink) => {
    expect(contrast(of(ink), of("surface"))).toBeGreaterThanOrEqual(GRAPHICS);
  });
});
