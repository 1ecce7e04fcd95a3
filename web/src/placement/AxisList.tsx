import type { AxisView } from "../api/queries";
import { plural } from "../format/numbers";
import styles from "./placement.module.css";

/** How each axis came out against what was asked. */
export function AxisList({ axes }: { axes: AxisView[] }) {
  return (
    <ul className={styles.axes} aria-label="Axes against their rules">
      {axes.map((axis) => (
        <li key={axis.axis}>
          <strong>{axis.axis}</strong>{" "}
          <span className="dim">
            {axis.mode} {axis.asked === "any" ? "anywhere" : `within ${article(axis.asked)} ${axis.asked}`}:
          </span>{" "}
          {plural(axis.groups, "group")},{" "}
          {axis.outside === 0 ? spans(axis) : `${axis.outside} outside, the widest spans ${axis.widest}`}
        </li>
      ))}
    </ul>
  );
}

function article(word: string): string {
  return /^[aeiou]/.test(word) ? "an" : "a";
}

function spans({ widest }: AxisView): string {
  return widest === "any" ? "in no common known domain" : `each within one ${widest}`;
}
