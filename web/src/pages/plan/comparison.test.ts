import { expect, it } from "vitest";
import type { EstimateView, PlanAnswer } from "../../api/queries";
import { against, entriesOf, lostBy, MEMORY, partsOf, scaleOf, settingsOf } from "./comparison";

function estimate(some: Partial<EstimateView>): EstimateView {
  return {
    plan: "single",
    parallelism: { tp: 1, pp: 1, microbatches: 1, virtual_stages: 1, schedule: "1f1b" },
    recompute: "none",
    accelerator: "H100-SXM",
    fits: true,
    memory_bytes: {},
    memory_total_bytes: 0,
    memory_limit_bytes: 0,
    step_s: 1,
    seconds: {},
    axes: [],
    tokens_per_s: 0,
    model_flops: 0,
    mfu: 0,
    mfu_convention: "causal",
    budget_tokens: 0,
    budget_s: 0,
    budget_gpu_hours: 0,
    checkpoint: null,
    ...some,
  };
}

const SPEC = {
  name: "job",
  parallelism: { tp: 1 },
  training: { steps: 9, recompute: { mode: "none", every: 2 } },
};

function answer(own: EstimateView | null, best: EstimateView[]): PlanAnswer {
  const search = { best, considered: 9, lost: {} };
  const nothing = { ranks: [], axes: [], explanation: [], refusal: null, refusal_details: [], changes: [], costs: [] };
  return { ...nothing, spec: SPEC, fits: true, plan: "", world_size: 1, ever: true, estimate: own, search, notes: [] };
}

it("puts the job's own plan first and each found plan into the job's file", () => {
  const found = estimate({ parallelism: { tp: 4, pp: 2 }, recompute: "full" });
  const [own, first] = entriesOf(answer(estimate({}), [found]));
  expect([own?.place, own?.spec]).toEqual([null, SPEC]);
  expect([first?.place, first?.spec]).toEqual([
    1,
    { name: "job", parallelism: { tp: 4, pp: 2 }, training: { steps: 9, recompute: { mode: "full", every: 1 } } },
  ]);
  expect(entriesOf(answer(null, []))).toEqual([]);
});

it("draws all plans on one scale, the limit of the memory included", () => {
  const entries = entriesOf(
    answer(estimate({ step_s: 3, memory_total_bytes: 90, memory_limit_bytes: 75 }), [estimate({ step_s: 2 })]),
  );
  expect(scaleOf(entries)).toEqual({ step: 3, memory: 90 });
});

it("lists parts in their order, unknown ones last and empty ones not at all", () => {
  const parts = { activations: 1, cache: 2, parameters: 3, gradients: 0 };
  expect(partsOf(parts, MEMORY)).toEqual([["parameters", 3], ["activations", 1], ["cache", 2]]);
});

it.each([
  [2, 1, "2.00 times as fast"],
  [1, 2, "2.00 times as slow"],
  [1, 1.001, "as fast as the job's own"],
])("compares a step of %d s with one of %d s", (own, other, words) => {
  expect(against(estimate({ step_s: own }), estimate({ step_s: other }))).toBe(words);
});

it("says nothing without a plan to compare with", () => expect(against(null, estimate({}))).toBeNull());

it("names what a plan has besides its degrees", () => {
  const pipeline = { pp: 4, microbatches: 8, virtual_stages: 2, schedule: "interleaved" };
  expect(settingsOf(estimate({ parallelism: pipeline, recompute: "full" }))).toBe(
    "8 micro-batches, interleaved, 2 stages a rank, recompute full",
  );
  expect(settingsOf(estimate({}))).toBe("no recompute");
});

it("tells why plans lost, most frequent first, and keeps reasons that it does not know", () => {
  expect(lostBy({ bubble: 2, memory: 30, fashion: 5 })).toEqual([
    [30, "do not fit into memory"],
    [5, "fashion"],
    [2, "wait longest in the pipeline's bubble"],
  ]);
});
