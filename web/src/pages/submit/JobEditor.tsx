import { type Ref, useId } from "react";
import styles from "./submit.module.css";

interface JobEditorProps {
  ref: Ref<HTMLTextAreaElement>;
  value: string;
  onChange: (value: string) => void;
  /** Lines to mark, from 1. */
  marked: number[];
}

const MIN_LINES = 24;

/** Selects a line, from 1, of the editor. */
export function goToLine(area: HTMLTextAreaElement | null, line: number): void {
  if (area === null) return;
  const { value } = area;
  const start = value.split("\n").slice(0, line - 1).join("\n").length + (line > 1 ? 1 : 0);
  area.focus();
  area.setSelectionRange(start, start + (value.slice(start).split("\n", 1)[0]?.length ?? 0));
}

/** A plain text field with line numbers; it grows with the text, so numbers and lines always meet. */
export function JobEditor({ ref, value, onChange, marked }: JobEditorProps) {
  const hint = useId();
  const lines = value.split("\n").length;
  const wrong = new Set(marked);
  return (
    <>
      <div className={styles.editor}>
        <div className={styles.gutter} aria-hidden="true">
          {Array.from({ length: Math.max(lines, MIN_LINES) }, (_, i) => (
            // oxlint-disable-next-line react/no-array-index-key -- a line is its number
            <div key={i} data-marked={wrong.has(i + 1) || undefined}>
              {i < lines ? i + 1 : ""}
            </div>
          ))}
        </div>
        <textarea
          ref={ref}
          className={styles.text}
          aria-label="Job file, YAML or JSON"
          aria-describedby={hint}
          aria-invalid={marked.length > 0}
          value={value}
          rows={Math.max(lines, MIN_LINES)}
          wrap="off"
          spellCheck={false}
          autoCapitalize="off"
          autoCorrect="off"
          onChange={(event) => onChange(event.currentTarget.value)}
        />
      </div>
      <p id={hint} className={styles.hint}>
        YAML or JSON. The schema of every field is at <a href="/api/v1/schema">/api/v1/schema</a>.
      </p>
    </>
  );
}
