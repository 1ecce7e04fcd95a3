import { exactly, localTime } from "../format/time";
import { Notice } from "../layout/Notice";
import { firstLine } from "../state/states";
import styles from "./goodput.module.css";
import { outcomeOf, PART_WORDS, PARTS, partsOf, type Repair, totalOf } from "./repairs";

/** Each fault from the last finished step to the next one, newest first; all bars are on one scale. */
export function RepairTimeline({ repairs }: { repairs: Repair[] }) {
  if (repairs.length === 0) return <Notice title="No fault">Nothing has broken in this job.</Notice>;
  const longest = Math.max(...repairs.map(totalOf));
  return (
    <>
      <ul className={styles.legend} aria-label="Parts of a repair">
        {PARTS.map((name) => (
          <li key={name}>
            <span className={styles.swatch} data-part={name} aria-hidden /> {PART_WORDS[name].label}
            <span className="dim"> {PART_WORDS[name].meaning}</span>
          </li>
        ))}
      </ul>
      <ol className={styles.repairs} reversed aria-label="Faults and repairs">
        {repairs.toReversed().map((repair) => (
          <li key={`${repair.told_at} ${repair.attempt}`}>
            <Row repair={repair} longest={longest} />
          </li>
        ))}
      </ol>
    </>
  );
}

function Row({ repair, longest }: { repair: Repair; longest: number }) {
  const parts = partsOf(repair);
  const words = parts.map(({ name, seconds }) => `${PART_WORDS[name].label} ${exactly(seconds)}`).join(" · ");
  const attempt = repair.attempt === null ? "" : `, attempt ${repair.attempt}`;
  return (
    <>
      <p className={styles.repairHead}>
        <strong>{repair.fault.replaceAll("-", " ")}</strong>
        {repair.step !== null && <span> after step {repair.step}</span>}: {outcomeOf(repair)}
        <span className="dim">
          {" "}
          <time dateTime={repair.told_at}>{localTime(repair.told_at)}</time>
          {attempt}
        </span>
      </p>
      <p className="dim">{firstLine(repair.message)}</p>
      {parts.length > 0 && (
        <>
          <div className={styles.parts} role="img" aria-label={words}>
            {parts.map(({ name, seconds }) => (
              <span
                key={name}
                data-part={name}
                title={`${PART_WORDS[name].label} ${exactly(seconds)}: ${PART_WORDS[name].meaning}`}
                style={{ width: `${longest > 0 ? (100 * seconds) / longest : 0}%` }}
              />
            ))}
          </div>
          <p className={styles.figures}>{words}</p>
        </>
      )}
    </>
  );
}
