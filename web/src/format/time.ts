/** Durations and times. The API speaks RFC 3339 in UTC; people read local time and spans. */

const MISSING = "–";

/** Span to three digits, for comparing: `7.26 ms`, `1.31 s`, `85.3 s`. */
export function exactly(seconds: number): string {
  const [value, unit] = seconds < 1 ? [seconds * 1000, "ms"] : [seconds, "s"];
  const digits = value === 0 ? 0 : Math.max(0, 2 - Math.floor(Math.log10(value)));
  return `${value.toLocaleString("en-US", { maximumFractionDigits: Math.min(digits, 3) })} ${unit}`;
}

/** Span in its two largest units: `850 ms`, `42 s`, `3 min 20 s`, `2 h 5 min`, `3 d 4 h`. */
export function duration(seconds: number | null | undefined): string {
  if (seconds == null || !Number.isFinite(seconds)) return MISSING;
  const span = Math.max(0, seconds);
  if (span === 0) return "0 s";
  if (span < 1) return `${Math.max(1, Math.round(span * 1000))} ms`;
  if (span < 10) return `${(Math.floor(span * 10) / 10).toLocaleString("en-US")} s`;
  const whole = Math.floor(span);
  const units: [number, string][] = [
    [86_400, "d"],
    [3_600, "h"],
    [60, "min"],
    [1, "s"],
  ];
  const first = units.findIndex(([size]) => whole >= size);
  const [size, name] = units[first] ?? [1, "s"];
  const next = units[first + 1];
  const head = `${Math.floor(whole / size)} ${name}`;
  const rest = next === undefined ? 0 : Math.floor((whole % size) / next[0]);
  return rest === 0 || next === undefined ? head : `${head} ${rest} ${next[1]}`;
}

/** Seconds between two times; an open end is `now`. */
export function secondsBetween(start: string, end: string | null, now: number): number {
  return ((end === null ? now : Date.parse(end)) - Date.parse(start)) / 1000;
}

/** How long ago, in one unit: `5 s`, `12 min`, `3 h`, `8 d`. For narrow columns. */
export function age(at: string, now: number): string {
  const span = Math.max(0, Math.floor((now - Date.parse(at)) / 1000));
  if (span < 60) return `${span} s`;
  if (span < 3_600) return `${Math.floor(span / 60)} min`;
  if (span < 86_400) return `${Math.floor(span / 3_600)} h`;
  return `${Math.floor(span / 86_400)} d`;
}

function two(value: number): string {
  return String(value).padStart(2, "0");
}

/** Local date and time to the second: `2026-11-30 22:14:05`. */
export function localTime(at: string | null | undefined): string {
  if (at == null) return MISSING;
  const when = new Date(at);
  const date = `${when.getFullYear()}-${two(when.getMonth() + 1)}-${two(when.getDate())}`;
  return `${date} ${clock(when)}`;
}

/** Local time of day to the second: `22:14:05`. */
export function clock(when: Date): string {
  return `${two(when.getHours())}:${two(when.getMinutes())}:${two(when.getSeconds())}`;
}

/** Seconds until the last step at `secondsPerStep`; null when it cannot be told. */
export function remainingSeconds(step: number, totalSteps: number, secondsPerStep: number | null): number | null {
  if (secondsPerStep === null || secondsPerStep <= 0 || step <= 0 || step >= totalSteps) return null;
  return (totalSteps - step) * secondsPerStep;
}
