import { SegmentedControl, useComputedColorScheme, VisuallyHidden } from "@mantine/core";
import { useCallback, useMemo, useState } from "react";
import type { RankView } from "../api/queries";
import { plural } from "../format/numbers";
import { css } from "../theme/color";
import { type AxisDegree, colorsOf, coordinateName, degrees, position, seat } from "./axes";
import styles from "./placement.module.css";
import { RankTable } from "./RankTable";
import { type Look, SlotMap, Swatch } from "./SlotMap";

interface RankMapProps {
  ranks: RankView[];
  /** Opens the log of a rank. */
  onOpen?: (rank: number) => void;
}

/** The ranks of a job where they sit, coloured by stage, replica or tensor rank; as a drawing or as a table. */
export function RankMap({ ranks, onOpen }: RankMapProps) {
  const scheme = useComputedColorScheme("light");
  const axes = useMemo(() => degrees(ranks), [ranks]);
  const [wanted, setWanted] = useState<string | null>(null);
  const [form, setForm] = useState("drawing");
  const [active, setActive] = useState<number | null>(null);
  const chosen = axes.find(({ axis }) => axis === wanted) ?? axes[0];
  const colors = useMemo(() => colorsOf(chosen, scheme), [chosen, scheme]);
  const along = chosen?.axis;

  const value = useCallback(
    (slot: number) => (along === undefined ? 0 : (ranks[slot]?.coordinates[along] ?? 0)),
    [ranks, along],
  );
  const look = useCallback(
    (slot: number): Look => ({ fill: colors[value(slot)] ?? null, text: String(ranks[slot]?.rank ?? "") }),
    [colors, value, ranks],
  );
  const related = useCallback((slot: number) => active === null || value(slot) === value(active), [active, value]);
  const shown = active === null ? undefined : ranks[active];

  return (
    <div>
      <div className={styles.controls}>
        {axes.length > 1 && (
          <SegmentedControl
            size="xs"
            aria-label="Colour ranks by"
            value={along ?? ""}
            onChange={setWanted}
            data={axes.map(({ axis }) => ({ value: axis, label: `by ${coordinateName(axis)}` }))}
          />
        )}
        <SegmentedControl
          size="xs"
          aria-label="Show the placement as"
          value={form}
          onChange={setForm}
          data={["drawing", "table"]}
        />
      </div>
      {form === "table" ? (
        <RankTable ranks={ranks} axes={axes} />
      ) : (
        <>
          <SlotMap
            label={`Placement of ${plural(ranks.length, "rank")}`}
            places={ranks}
            look={look}
            active={active}
            onActive={setActive}
            related={axes.length > 0 ? related : undefined}
            onOpen={(slot) => onOpen?.(ranks[slot]?.rank ?? 0)}
          />
          {chosen !== undefined && <Legend chosen={chosen} colors={colors} />}
          <div className={styles.detail} aria-live="polite">
            {shown === undefined ? (
              <span className="dim">Point at a rank, or move with the arrow keys, to see where it sits.</span>
            ) : (
              <RankDetail rank={shown} axes={axes} opens={onOpen !== undefined} />
            )}
          </div>
        </>
      )}
    </div>
  );
}

function RankDetail({ rank, axes, opens }: { rank: RankView; axes: AxisDegree[]; opens: boolean }) {
  const process = [rank.pid === null ? null : `pid ${rank.pid}`, rank.device].filter(Boolean).join(", ");
  return (
    <>
      <div>
        <strong>Rank {rank.rank}</strong>
        {axes.length > 0 && `: ${position(rank, axes)}`}
      </div>
      <div className="dim">
        {seat(rank)}
        {process !== "" && ` · ${process}`}
        {opens && <VisuallyHidden>. Press Enter for its log.</VisuallyHidden>}
      </div>
    </>
  );
}

function Legend({ chosen, colors }: { chosen: AxisDegree; colors: ReturnType<typeof colorsOf> }) {
  const name = coordinateName(chosen.axis);
  if (colors.length > 12) {
    const stops = colors.filter((_, i) => i % Math.ceil(colors.length / 12) === 0 || i === colors.length - 1).map(css);
    return (
      <ul className={styles.legend} aria-label="Legend">
        <li>
          {name} 0
          <span className={styles.ramp} style={{ background: `linear-gradient(90deg, ${stops.join(", ")})` }} />
          {name} {colors.length - 1}
        </li>
      </ul>
    );
  }
  return (
    <ul className={styles.legend} aria-label="Legend">
      {colors.map((color, i) => (
        <li key={css(color)}>
          <Swatch color={color} /> {name} {i}
        </li>
      ))}
    </ul>
  );
}
