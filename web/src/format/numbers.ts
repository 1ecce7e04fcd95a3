/** Numbers as people read them. Every function returns the figure with its unit; a missing figure is an en dash. */

const MISSING = "–";

function trimmed(value: number, digits: number): string {
  return value.toLocaleString("en-US", { maximumFractionDigits: digits, minimumFractionDigits: 0 });
}

/** Whole number with thousands separators. */
export function count(value: number | null | undefined): string {
  return value == null ? MISSING : value.toLocaleString("en-US", { maximumFractionDigits: 0 });
}

/** Number and noun: `1 rank`, `8 ranks`. */
export function plural(value: number, noun: string): string {
  return `${count(value)} ${noun}${value === 1 ? "" : "s"}`;
}

/** Three significant digits with a metric suffix: `12.3k`, `4.56M`. */
export function metric(value: number): string {
  const steps: [number, string][] = [
    [1e12, "T"],
    [1e9, "G"],
    [1e6, "M"],
    [1e3, "k"],
  ];
  for (const [size, suffix] of steps) {
    if (Math.abs(value) >= size) return `${significant(value / size)}${suffix}`;
  }
  return significant(value);
}

function significant(value: number): string {
  const size = Math.abs(value);
  return trimmed(value, size >= 100 ? 0 : size >= 10 ? 1 : 2);
}

/** Throughput: `12.3k tokens/s`. */
export function tokensPerSecond(value: number | null | undefined): string {
  return value == null || !Number.isFinite(value) ? MISSING : `${metric(value)} tokens/s`;
}

/** Rate of arithmetic: `3.08 GFLOP/s`. */
export function flopsPerSecond(value: number | null | undefined): string {
  if (value == null || !Number.isFinite(value)) return MISSING;
  const [figure, suffix] = /^(.*?)([kMGT]?)$/.exec(metric(value))?.slice(1) ?? [];
  return `${figure} ${suffix}FLOP/s`;
}

/** Loss in nats a token, four significant digits: a change in the third decimal matters. */
export function loss(value: number | null | undefined): string {
  if (value == null) return MISSING;
  if (!Number.isFinite(value)) return "not finite";
  return value >= 100 ? value.toFixed(1) : value.toFixed(3);
}

/** Size in binary units: `1.5 MiB`. */
export function bytes(value: number | null | undefined): string {
  if (value == null) return MISSING;
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let size = value;
  let unit = 0;
  while (size >= 1024 && unit < units.length - 1) {
    size /= 1024;
    unit += 1;
  }
  return `${unit === 0 ? trimmed(size, 0) : significant(size)} ${units[unit]}`;
}

/** A share or mean of slots, three significant digits: `0`, `1.5`, `0.04`. */
export function share(value: number): string {
  return value.toLocaleString("en-US", { maximumSignificantDigits: 3 });
}

/** Share of a whole: `37.5 %`. */
export function percent(part: number, whole: number): string {
  if (whole <= 0) return MISSING;
  return `${trimmed((100 * part) / whole, 1)} %`;
}

/** Learning rates and norms: short, scientific when small. */
export function scientific(value: number | null | undefined): string {
  if (value == null) return MISSING;
  if (!Number.isFinite(value)) return "not finite";
  if (value !== 0 && Math.abs(value) < 1e-2) return value.toExponential(2);
  return trimmed(value, 3);
}
