import type { ReactNode } from "react";
import { count, percent } from "../format/numbers";
import styles from "./state.module.css";

interface ProgressProps {
  step: number;
  totalSteps: number;
  state: string;
  /** Shown at the right instead of the percentage. */
  aside?: ReactNode;
}

/** Finished steps of all steps, as figures and as a bar. */
export function Progress({ step, totalSteps, state, aside }: ProgressProps) {
  const share = totalSteps > 0 ? Math.min(100, (100 * step) / totalSteps) : 0;
  return (
    <div className={styles.progress}>
      <div className={styles.progressText}>
        <span>
          {count(step)} / {count(totalSteps)} <span className="dim">steps</span>
        </span>
        <span className="dim">{aside ?? percent(step, totalSteps)}</span>
      </div>
      <div
        className={styles.track}
        role="progressbar"
        aria-label="Steps"
        aria-valuemin={0}
        aria-valuemax={totalSteps}
        aria-valuenow={step}
        aria-valuetext={`${count(step)} of ${count(totalSteps)} steps`}
      >
        <div className={styles.fill} style={{ width: `${share}%`, background: `var(--state-${state}, currentColor)` }} />
      </div>
    </div>
  );
}
