import { percent } from "../format/numbers";
import { Facts } from "../layout/Panel";
import { type Fall, gpuTime, type Ledger, waterfall } from "./classes";
import styles from "./goodput.module.css";

/** From held GPU time down to what was useful: a row a class, which opens to say what it means. */
export function Waterfall({ ledger, label }: { ledger: Ledger; label: string }) {
  const { held_gpu_seconds: held, total_gpu_seconds: whole } = ledger;
  return (
    <div className={styles.panel}>
      <Facts
        items={[
          ["Goodput", held > 0 ? percent(ledger.goodput, 1) : "–"],
          ["Effective training time", whole > 0 ? percent(ledger.ettr, 1) : "–"],
          ["Held", gpuTime(held, whole)],
          ["Held and waited for", gpuTime(whole)],
        ]}
      />
      <ul className={styles.falls} aria-label={label}>
        {waterfall(ledger).map((fall) => (
          <li key={fall.key}>
            <Row fall={fall} held={held} whole={whole} />
          </li>
        ))}
      </ul>
      <p className="dim">
        Shares are of held GPU time; every GPU-second lies in one class. Goodput is useful compute / held. Effective
        training time is steps that count, waits included, / all time since submission.
      </p>
    </div>
  );
}

function Row({ fall, held, whole }: { fall: Fall; held: number; whole: number }) {
  const { label, meaning, seconds, bar, tone, unmeasured } = fall;
  const figure = seconds === null ? "not measured" : gpuTime(seconds, whole);
  const part = seconds === null || bar === null ? "" : percent(seconds, held);
  const hint = unmeasured > 0 ? ` Not measured in ${gpuTime(unmeasured, whole)} of steps, which count as computing.` : "";
  return (
    <details className={styles.fall}>
      <summary title={`${label}: ${figure}${part && `, ${part} of held`}. ${meaning}${hint}`}>
        <span className={styles.name}>
          {label}
          {unmeasured > 0 && seconds !== null && <span className="dim"> (in part)</span>}
        </span>
        <span className={styles.track} data-empty={bar === null || undefined} aria-hidden>
          {bar !== null && (
            <span
              className={styles.bar}
              data-tone={tone}
              style={{ left: `${100 * bar.from}%`, width: `${100 * bar.length}%` }}
            />
          )}
        </span>
        <span className="number">{figure}</span>
        <span className={`number dim ${styles.share}`}>{bar === null ? "not held" : part}</span>
      </summary>
      <p className="dim">
        {meaning}
        {hint}
      </p>
    </details>
  );
}
