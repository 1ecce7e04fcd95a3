import type { JobState } from "../api/queries";
import { isKnown } from "./states";
import styles from "./state.module.css";

/** State as shape, word and colour, so that none of them is needed alone. */
export function StateChip({ state, large = false }: { state: string; large?: boolean }) {
  return (
    <span
      className={styles.chip}
      data-large={large || undefined}
      style={isKnown(state) ? { color: `var(--state-${state})`, background: `var(--state-${state}-bg)` } : {}}
    >
      <svg width="12" height="12" viewBox="0 0 12 12" aria-hidden="true" fill="none" stroke="currentColor" strokeWidth="1.8">
        {isKnown(state) ? SHAPES[state] : <circle cx="6" cy="6" r="4.5" />}
      </svg>
      {state}
    </span>
  );
}

const SHAPES: Record<JobState, React.JSX.Element> = {
  queued: <circle cx="6" cy="6" r="4.5" strokeDasharray="2.2 2" />,
  starting: (
    <>
      <circle cx="6" cy="6" r="4.5" />
      <path d="M6 3v3l2 1.5" />
    </>
  ),
  running: <path d="M3 1.5v9l7.5-4.5z" fill="currentColor" stroke="none" />,
  recovering: <path d="M10.5 6A4.5 4.5 0 1 1 8.6 2.3M9 0v3H6" />,
  stopping: <path d="M2 2h8v8H2z" />,
  succeeded: <path d="M1.5 6.5l3 3 6-7" />,
  failed: <path d="M2 2l8 8M10 2l-8 8" />,
  cancelled: (
    <>
      <circle cx="6" cy="6" r="4.5" />
      <path d="M3 9l6-6" />
    </>
  ),
};
