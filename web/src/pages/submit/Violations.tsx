import { UnstyledButton } from "@mantine/core";
import type { Violation } from "../../api/problem";
import { plural } from "../../format/numbers";
import { lineOf } from "./locate";
import styles from "./submit.module.css";

export interface Located {
  violation: Violation;
  line: number | null;
}

export function locate(text: string, violations: readonly Violation[]): Located[] {
  return violations.map((violation) => ({ violation, line: lineOf(text, violation.field) }));
}

/** Everything that is wrong, each with its field, its line and what would be right. */
export function Violations({ located, onGoTo }: { located: Located[]; onGoTo: (line: number) => void }) {
  return (
    <div role="alert">
      <p>
        {plural(located.length, "field")} to put right:
      </p>
      <ul className={styles.violations}>
        {located.map(({ violation, line }) => (
          <li key={`${violation.field} ${violation.message}`}>
            <div className={styles.where}>
              <code>{violation.field || "the whole file"}</code>
              {line !== null && (
                <UnstyledButton className={styles.goTo} onClick={() => onGoTo(line)}>
                  line {line}
                </UnstyledButton>
              )}
            </div>
            <div>{violation.message}</div>
            {violation.value !== null && <div className="dim">found: {JSON.stringify(violation.value)}</div>}
          </li>
        ))}
      </ul>
    </div>
  );
}
