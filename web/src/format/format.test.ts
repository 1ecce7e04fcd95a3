import { describe, expect, it } from "vitest";
import { bytes, count, flopsPerSecond, loss, metric, percent, plural, tokensPerSecond } from "./numbers";
import { age, duration, exactly, remainingSeconds } from "./time";
import { toYaml } from "./yaml";

describe("numbers", () => {
  it.each([
    [0, "0"],
    [9.876, "9.88"],
    [999.6, "1,000"],
    [1_000, "1k"],
    [12_345, "12.3k"],
    [4_100_000, "4.1M"],
    [2.5e12, "2.5T"],
  ])("writes %d in metric units as %s", (value, text) => expect(metric(value)).toBe(text));

  it("gives each figure its unit, and a dash for none", () => {
    expect(tokensPerSecond(9_450)).toBe("9.45k tokens/s");
    expect(tokensPerSecond(null)).toBe("–");
    expect(flopsPerSecond(3.08e9)).toBe("3.08 GFLOP/s");
    expect(flopsPerSecond(12)).toBe("12 FLOP/s");
    expect(flopsPerSecond(null)).toBe("–");
    expect(bytes(1536)).toBe("1.5 KiB");
    expect(bytes(0)).toBe("0 B");
    expect(bytes(12 * 2 ** 20)).toBe("12 MiB");
    expect(percent(83, 120)).toBe("69.2 %");
    expect(percent(1, 0)).toBe("–");
    expect(count(10_240)).toBe("10,240");
    expect(plural(1, "rank")).toBe("1 rank");
    expect(plural(2, "rank")).toBe("2 ranks");
  });

  it("keeps three decimals of a loss and names one that is not finite", () => {
    expect(loss(2.0871)).toBe("2.087");
    expect(loss(Number.NaN)).toBe("not finite");
    expect(loss(null)).toBe("–");
  });
});

describe("time", () => {
  it.each([
    [0, "0 s"],
    [0.0004, "1 ms"],
    [0.2134, "213 ms"],
    [7.89, "7.8 s"],
    [59.9, "59 s"],
    [200, "3 min 20 s"],
    [3_600, "1 h"],
    [7_500, "2 h 5 min"],
    [273_600, "3 d 4 h"],
    [null, "–"],
  ])("writes %s s as %s", (seconds, text) => expect(duration(seconds)).toBe(text));

  it.each([
    [0, "0 ms"],
    [0.0000123, "0.012 ms"],
    [0.0072561, "7.26 ms"],
    [0.4, "400 ms"],
    [1.309, "1.31 s"],
    [85.349, "85.3 s"],
    [12_345.6, "12,346 s"],
  ])("writes %s s to three digits as %s", (seconds, text) => expect(exactly(seconds)).toBe(text));

  it("ages in one unit and never below zero", () => {
    const now = Date.parse("2026-11-30T12:00:00Z");
    expect(age("2026-11-30T11:59:55Z", now)).toBe("5 s");
    expect(age("2026-11-30T09:00:00Z", now)).toBe("3 h");
    expect(age("2026-11-30T12:00:03Z", now)).toBe("0 s");
  });

  it("tells the rest of a job only when it can", () => {
    expect(remainingSeconds(20, 120, 0.5)).toBe(50);
    expect(remainingSeconds(0, 120, 0.5)).toBeNull();
    expect(remainingSeconds(120, 120, 0.5)).toBeNull();
    expect(remainingSeconds(20, 120, null)).toBeNull();
  });
});

describe("toYaml", () => {
  it("writes nested maps, flat lists inline and quotes what YAML would read otherwise", () => {
    const value = {
      name: "demo",
      schedule: "1f1b",
      flag: true,
      nothing: null,
      word: "no",
      optimizer: { betas: [0.9, 0.95], lr: 3e-3 },
      empty: {},
      steps: [{ a: 1, b: { c: 2 } }, { a: 3 }],
    };
    expect(toYaml(value)).toBe(
      [
        "name: demo",
        'schedule: "1f1b"',
        "flag: true",
        "nothing: null",
        'word: "no"',
        "optimizer:",
        "  betas: [0.9, 0.95]",
        "  lr: 0.003",
        "empty: {}",
        "steps:",
        "  - a: 1",
        "    b:",
        "      c: 2",
        "  - a: 3",
        "",
      ].join("\n"),
    );
  });
});
