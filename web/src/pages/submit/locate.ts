/** Finds the line of a field path in a job file, without parsing YAML: by indentation, as the files are written. */

/** Line (from 1) of `path` (`parallelism.tp`) in block YAML or indented JSON; of the nearest parent that is found; null for none. */
export function lineOf(text: string, path: string): number | null {
  const lines = text.split("\n");
  let from = 0;
  let indent = -1;
  let found: number | null = null;
  for (const key of path.split(".")) {
    const at = childLine(lines, from, indent, key);
    if (at === null) break;
    found = at + 1;
    from = at + 1;
    indent = indentOf(lines[at] ?? "");
  }
  return found;
}

/** Index of the line that holds `key` among the children of a block that is indented by `parent`. */
function childLine(lines: string[], from: number, parent: number, key: string): number | null {
  let level: number | null = null;
  for (let i = from; i < lines.length; i += 1) {
    const line = lines[i] ?? "";
    if (/^\s*(#.*)?$/.test(line) || /^\s*[{}[\]],?\s*$/.test(line)) continue;
    const indent = indentOf(line);
    if (indent <= parent) return null;
    level ??= indent;
    if (indent === level && keyOf(line) === key) return i;
  }
  return null;
}

function indentOf(line: string): number {
  return line.length - line.trimStart().length;
}

function keyOf(line: string): string | null {
  const match = /^\s*(?:"([^"]*)"|'([^']*)'|([^\s:#"'][^:]*?))\s*:(?:\s|$)/.exec(line);
  return match === null ? null : (match[1] ?? match[2] ?? match[3] ?? null);
}
