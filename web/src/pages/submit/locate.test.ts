import { expect, it } from "vitest";
import { lineOf } from "./locate";

const YAML = `# a job
name: demo
model:
  tp: 9
parallelism:

  tp: 2
  # comment
  pp: 3
placement:
  tp: {tier: island}
training:
  optimizer:
    betas: [0.9, 2.0]
`;

it.each([
  ["name", 2],
  ["parallelism.tp", 7],
  ["parallelism.pp", 9],
  ["parallelism.missing", 5],
  ["placement.tp.tier", 11],
  ["training.optimizer.betas.1", 14],
  ["unknown", null],
  ["", null],
])("finds %s at line %s", (path, line) => expect(lineOf(YAML, path)).toBe(line));

it("reads indented JSON as well", () => {
  expect(lineOf('{\n  "name": "demo",\n  "parallelism": {\n    "tp": 2\n  }\n}', "parallelism.tp")).toBe(4);
});
