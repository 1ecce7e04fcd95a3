import { percent } from "../../../format/numbers";
import { type Part, total } from "./cost";
import styles from "./cost.module.css";

/** Parts of a whole, one a row: label, bar, figure, share. */
export function BarList({ label, parts, format }: { label: string; parts: Part[]; format: (value: number) => string }) {
  const whole = total(parts);
  const largest = Math.max(...parts.map(({ value }) => value));
  return (
    <table className={styles.bars} aria-label={label}>
      <tbody>
        {parts.map(({ key, label: name, value, waiting }) => (
          <tr key={key}>
            <th scope="row">{name}</th>
            <td className={styles.track} aria-hidden>
              <span
                className={styles.bar}
                data-waiting={waiting || undefined}
                style={{ width: `${(100 * value) / largest}%` }}
              />
            </td>
            <td className="number">{format(value)}</td>
            <td className="number dim">{percent(value, whole)}</td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}
