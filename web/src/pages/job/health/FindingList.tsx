import type { FindingView } from "../../../api/queries";
import { percent } from "../../../format/numbers";
import styles from "./health.module.css";

const ORDER = ["straggler", "imbalance", "watch"];

/** What was found, what is slow now first. */
export function FindingList({ findings, attempts }: { findings: readonly FindingView[]; attempts: number }) {
  if (findings.length === 0) return <p className={styles.healthy}>All ranks compute alike.</p>;
  const listed = findings.toSorted(
    (a, b) =>
      ORDER.indexOf(a.category) - ORDER.indexOf(b.category) ||
      Number(b.ongoing) - Number(a.ongoing) ||
      b.attempt - a.attempt ||
      b.to_step - a.to_step,
  );
  return (
    <ul
      className={styles.findings}
      aria-label="What was found"
      // oxlint-disable-next-line jsx-a11y/no-noninteractive-tabindex -- a scrolling region must take keys (WCAG 2.1.1)
      tabIndex={0}
    >
      {listed.map((one) => (
        <li key={`${one.attempt} ${one.category} ${one.subject} ${one.from_step}`} data-tone={toneOf(one)}>
          <span className={styles.tag}>{tagOf(one)}</span>
          <span>
            {one.sentence}{" "}
            <span className="dim">
              {one.category === "straggler" && `Confidence ${percent(one.confidence, 1)}. `}
              {attempts > 1 && `Attempt ${one.attempt}.`}
            </span>
          </span>
        </li>
      ))}
    </ul>
  );
}

function tagOf({ category, ongoing }: FindingView): string {
  if (category === "straggler") return ongoing ? "slow now" : "was slow";
  return category === "imbalance" ? "uneven work" : "watched";
}

function toneOf({ category, ongoing }: FindingView): string {
  if (category === "straggler") return ongoing ? "bad" : "past";
  return category === "imbalance" ? "uneven" : "past";
}
