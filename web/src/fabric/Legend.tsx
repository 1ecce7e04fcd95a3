import { UnstyledButton } from "@mantine/core";
import { count, plural } from "../format/numbers";
import { css, type Rgb } from "../theme/color";
import styles from "./fabric.module.css";
import { type Holder, type Occupancy, CONDITIONS } from "./occupancy";

/** Jobs named in the legend, the largest; a cluster may run thousands. */
const NAMED = 12;

interface LegendProps {
  occupancy: Occupancy;
  colors: readonly Rgb[];
  /** Id of the job that stands out. */
  chosen: string | null;
  onChoose: (jobId: string | null) => void;
}

/** Who holds what. A job that is pressed stands out in the drawing. */
export function Legend({ occupancy: { holders }, colors, chosen, onChoose }: LegendProps) {
  const largest = holders
    .map((holder, number): [Holder, number] => [holder, number])
    .toSorted(([a], [b]) => b.slots - a.slots)
    .slice(0, NAMED);
  return (
    <ul className={styles.legend} aria-label="Who holds what">
      {largest.map(([{ jobId, name, slots }, number]) => (
        <li key={jobId}>
          <Swatch color={colors[number]} />
          <UnstyledButton
            className={styles.job}
            aria-pressed={chosen === jobId}
            onClick={() => onChoose(chosen === jobId ? null : jobId)}
          >
            {name}
          </UnstyledButton>
          <span className="dim">{plural(slots, "slot")}</span>
        </li>
      ))}
      {holders.length > NAMED && <li className="dim">and {count(holders.length - NAMED)} more jobs</li>}
      {CONDITIONS.map((use) => (
        <li key={use}>
          <span className={styles.swatch} data-use={use} aria-hidden="true" /> {use === "alive" ? "free" : use}
        </li>
      ))}
    </ul>
  );
}

export function Swatch({ color }: { color: Rgb | undefined }) {
  return <span className={styles.swatch} style={color && { background: css(color) }} aria-hidden="true" />;
}
