import { useComputedColorScheme } from "@mantine/core";
import { percent } from "../../format/numbers";
import { axisColors, css } from "../../theme/color";
import styles from "./plan.module.css";

interface StackedBarProps {
  label: string;
  parts: [string, number][];
  /** All parts there are: each has one colour in every bar. */
  order: readonly string[];
  /** Value at the right end. */
  full: number;
  /** Marked with a line. */
  limit?: number;
  format: (value: number) => string;
}

/** Parts of a whole on a scale that other bars share. */
export function StackedBar({ label, parts, order, full, limit, format }: StackedBarProps) {
  const scheme = useComputedColorScheme("light");
  const colors = axisColors(order.length + 1, scheme).map(css);
  const words = parts.map(([name, value]) => `${name} ${format(value)}`).join(", ");
  return (
    <div className={styles.bar} role="img" aria-label={`${label}: ${words}`}>
      {parts.map(([name, value]) => {
        const at = order.indexOf(name);
        const background = colors[at < 0 ? order.length : at];
        return <span key={name} title={`${name} ${format(value)}`} style={{ width: share(value, full), background }} />;
      })}
      {limit !== undefined && <i style={{ left: share(limit, full) }} title={`usable ${format(limit)}`} />}
    </div>
  );
}

function share(value: number, full: number): string {
  return full > 0 ? `${(100 * value) / full}%` : "0";
}

/** Names and colours of the parts. */
export function BarLegend({ label, order }: { label: string; order: readonly string[] }) {
  const scheme = useComputedColorScheme("light");
  const colors = axisColors(order.length + 1, scheme).map(css);
  return (
    <ul className={styles.legend} aria-label={label}>
      <li className={styles.legendTitle}>{label}:</li>
      {order.map((name, i) => (
        <li key={name}>
          <span className={styles.swatch} style={{ background: colors[i] }} aria-hidden="true" /> {name}
        </li>
      ))}
    </ul>
  );
}

/** Parts as figures: what the bar shows, for reading. */
export function PartTable({ label, parts, format }: { label: string; parts: [string, number][]; format: (value: number) => string }) {
  const whole = parts.reduce((sum, [, value]) => sum + value, 0);
  return (
    <table className={styles.parts} aria-label={label}>
      <tbody>
        {parts.map(([name, value]) => (
          <tr key={name}>
            <th scope="row">{name}</th>
            <td className="number">{format(value)}</td>
            <td className="number dim">{percent(value, whole)}</td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}
