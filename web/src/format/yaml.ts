/** Writes JSON values as YAML 1.2, for reading and copying. Reading YAML is the server's work. */

type Value = unknown;

const PLAIN = /^[A-Za-z_/][A-Za-z0-9_./ -]*$/;
const RESERVED = new Set(["true", "false", "null", "yes", "no", "on", "off", "y", "n", "nan", "inf"]);

function scalar(value: Value): string {
  if (typeof value !== "string") return JSON.stringify(value) ?? "null";
  const plain = PLAIN.test(value) && !RESERVED.has(value.toLowerCase()) && value.trim() === value;
  return plain ? value : JSON.stringify(value);
}

function isLeaf(value: Value): boolean {
  return value === null || typeof value !== "object" || Object.keys(value).length === 0;
}

function leaf(value: Value): string {
  if (Array.isArray(value)) return "[]";
  if (value !== null && typeof value === "object") return "{}";
  return scalar(value);
}

function lines(value: Value, indent: string): string[] {
  if (isLeaf(value)) return [`${indent}${leaf(value)}`];
  if (Array.isArray(value)) {
    if (value.every(isLeaf)) return [`${indent}[${value.map(leaf).join(", ")}]`];
    return value.flatMap((item) => {
      const inner = lines(item, `${indent}  `);
      const [head = "", ...rest] = inner;
      return [`${indent}- ${head.slice(indent.length + 2)}`, ...rest];
    });
  }
  return Object.entries(value as Record<string, Value>).flatMap(([key, item]) => {
    if (isLeaf(item)) return [`${indent}${scalar(key)}: ${leaf(item)}`];
    if (Array.isArray(item) && item.every(isLeaf)) {
      return [`${indent}${scalar(key)}: [${item.map(leaf).join(", ")}]`];
    }
    return [`${indent}${scalar(key)}:`, ...lines(item, `${indent}  `)];
  });
}

export function toYaml(value: Value): string {
  return `${lines(value, "").join("\n")}\n`;
}
