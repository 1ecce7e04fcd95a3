import { expect, it } from "vitest";
import type { EventView, StepCost } from "../../../api/queries";
import { bytesByAxis, imbalance, newestLoads, secondsOfStep, total, waited } from "./cost";

function cost(some: Partial<StepCost>): StepCost {
  return { sent_bytes: null, phases_s: null, exposed_s: null, peak_bytes: null, model_flops_per_s: null, mfu: null, ...some };
}

function event(kind: EventView["kind"], data: EventView["data"]): EventView {
  return { id: 1, at: "2026-12-01T00:00:00Z", kind, attempt: 1, message: "", data };
}

it("takes the mean over steps that say something", () => {
  const costs = [null, cost({ sent_bytes: { tp: 100, dp: 10 } }), cost({ sent_bytes: { tp: 300 } })];
  expect(bytesByAxis(costs)?.map(({ key, value }) => [key, value])).toEqual([["tp", 200], ["dp", 5]]);
  expect(bytesByAxis([null, cost({})])).toBeNull();
  expect(bytesByAxis([cost({ sent_bytes: {} })])).toEqual([]);
});

it("lists work before waiting, which adds up to the step", () => {
  const found = secondsOfStep([cost({ phases_s: { forward: 0.2, data: 0, other: 0.1 }, exposed_s: { tp: 0.3 } })]);
  expect(found?.map(({ label, waiting }) => [label, waiting])).toEqual([
    ["forward", false],
    ["other", false],
    ["waiting: tensor (tp)", true],
  ]);
  expect(total(found ?? [])).toBeCloseTo(0.6);
  expect(waited(cost({ exposed_s: { tp: 0.25, dp: 0.5 } }))).toBe(0.75);
  expect(waited(cost({}))).toBeNull();
});

it("reads the newest loads and leaves out what is none", () => {
  const good = { layer: 1, assigned: [6, 2], dropped: [1, 0] };
  const loads = newestLoads([
    event("expert-load", { step: 1, layers: [good] }),
    event("expert-load", { step: 9, layers: [good, { layer: "x" }, { layer: 2, assigned: [1], dropped: [] }], layers_with_experts: 8 }),
    event("evaluated", { step: 10 }),
  ]);
  expect(loads).toEqual({ step: 9, layers: [good], layersWithExperts: 8 });
  expect(imbalance(good)).toEqual({ fullest: 1.5, dropped: 0.125 });
  expect(imbalance({ layer: 0, assigned: [0, 0], dropped: [0, 0] })).toEqual({ fullest: 0, dropped: 0 });
  expect(newestLoads([])).toBeNull();
  expect(newestLoads([event("expert-load", { step: 1, layers: "many" })])).toBeNull();
});
