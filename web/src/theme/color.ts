/** Colours by computation: OKLCH for even steps in hue and lightness, WCAG 2.2 contrast for text on them. */

export type Rgb = readonly [number, number, number];

/** OKLCH (lightness 0..1, chroma, hue in degrees) to sRGB 0..255, clipped (Ottosson 2020, "A perceptual color space"). */
export function oklch(lightness: number, chroma: number, hueDegrees: number): Rgb {
  const hue = (hueDegrees * Math.PI) / 180;
  const a = chroma * Math.cos(hue);
  const b = chroma * Math.sin(hue);
  const l = (lightness + 0.3963377774 * a + 0.2158037573 * b) ** 3;
  const m = (lightness - 0.1055613458 * a - 0.0638541728 * b) ** 3;
  const s = (lightness - 0.0894841775 * a - 1.291485548 * b) ** 3;
  return [
    encode(4.0767416621 * l - 3.3077115913 * m + 0.2309699292 * s),
    encode(-1.2684380046 * l + 2.6097574011 * m - 0.3413193965 * s),
    encode(-0.0041960863 * l - 0.7034186147 * m + 1.707614701 * s),
  ];
}

function encode(linear: number): number {
  const clipped = Math.min(1, Math.max(0, linear));
  const value = clipped <= 0.0031308 ? 12.92 * clipped : 1.055 * clipped ** (1 / 2.4) - 0.055;
  return Math.round(value * 255);
}

export function css([red, green, blue]: Rgb): string {
  return `rgb(${red} ${green} ${blue})`;
}

/** `#rgb` or `#rrggbb` to sRGB 0..255. */
export function parseHex(hex: string): Rgb {
  const digits = hex.replace("#", "");
  const full = digits.length === 3 ? [...digits].map((digit) => digit + digit).join("") : digits;
  const value = Number.parseInt(full, 16);
  return [(value >> 16) & 255, (value >> 8) & 255, value & 255];
}

/** Relative luminance, WCAG 2.2. */
export function luminance(color: Rgb): number {
  const [red, green, blue] = color.map((channel) => {
    const value = channel / 255;
    return value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
  }) as [number, number, number];
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
}

/** Contrast ratio of two colours, 1..21, WCAG 2.2. */
export function contrast(first: Rgb, second: Rgb): number {
  const [a, b] = [luminance(first), luminance(second)];
  return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
}

// With black and white one of the two always reaches 4.58, the square root of 21.
const DARK_INK: Rgb = [0, 0, 0];
const LIGHT_INK: Rgb = [255, 255, 255];

/** The ink, black or white, that reads better on `background`. */
export function inkOn(background: Rgb): Rgb {
  return contrast(background, DARK_INK) >= contrast(background, LIGHT_INK) ? DARK_INK : LIGHT_INK;
}

export type Scheme = "light" | "dark";

/** Up to this many values each gets a hue of its own; more are drawn as steps of one ramp. */
export const DISTINCT = 8;

// Hues in an order in which neighbours differ most, so that two values already look far apart.
const HUES = [245, 55, 160, 330, 95, 285, 195, 20];

/** Colours of `count` values of one axis. */
export function axisColors(count: number, scheme: Scheme): Rgb[] {
  const base = scheme === "light" ? 0.7 : 0.68;
  if (count <= DISTINCT) {
    return Array.from({ length: count }, (_, i) => oklch(base + (i % 2 === 0 ? -0.04 : 0.07), 0.125, HUES[i] ?? 0));
  }
  return Array.from({ length: count }, (_, i) => {
    const part = i / (count - 1);
    return oklch(0.45 + 0.42 * part, 0.13, 290 - 200 * part);
  });
}

/** Colours of jobs that lie side by side in any order: beyond a few, each next one is a golden angle away. */
export function jobColors(count: number, scheme: Scheme): Rgb[] {
  if (count <= DISTINCT) return axisColors(count, scheme);
  const base = scheme === "light" ? 0.68 : 0.66;
  return Array.from({ length: count }, (_, i) => oklch(base + 0.11 * ((i % 3) - 1), 0.125, (245 + 137.508 * i) % 360));
}
