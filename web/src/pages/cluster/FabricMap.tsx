import { useComputedColorScheme } from "@mantine/core";
import { Link, useNavigate } from "@tanstack/react-router";
import { useCallback, useMemo, useState } from "react";
import type { NodeView } from "../../api/queries";
import { plural } from "../../format/numbers";
import placement from "../../placement/placement.module.css";
import { type Look, SlotMap, Swatch } from "../../placement/SlotMap";
import { axisColors } from "../../theme/color";
import { type Holder, holdersOf, type PlacedSlot, slotsOf, usable } from "./slots";

/** Every slot of the cluster where it is, coloured by the job that holds it. */
export function FabricMap({ nodes }: { nodes: NodeView[] }) {
  const scheme = useComputedColorScheme("light");
  const navigate = useNavigate();
  const [active, setActive] = useState<number | null>(null);
  const slots = useMemo(() => slotsOf(nodes), [nodes]);
  const holders = useMemo(() => holdersOf(slots), [slots]);
  const colors = useMemo(() => axisColors(holders.length, scheme), [holders.length, scheme]);
  const order = useMemo(() => new Map(holders.map(({ jobId }, i) => [jobId, i])), [holders]);

  const look = useCallback(
    (index: number): Look => {
      const slot = slots[index];
      if (slot === undefined) return { fill: null, text: "" };
      const fill = slot.jobId === null ? null : (colors[order.get(slot.jobId) ?? 0] ?? null);
      return { fill, text: slot.rank === null ? "" : String(slot.rank), out: !usable(slot) };
    },
    [slots, colors, order],
  );
  const related = useCallback(
    (index: number) => active === null || slots[index]?.jobId === slots[active]?.jobId,
    [slots, active],
  );
  const open = (index: number) => {
    const jobId = slots[index]?.jobId;
    if (jobId != null) void navigate({ to: "/jobs/$jobId", params: { jobId } });
  };
  const shown = active === null ? undefined : slots[active];

  return (
    <>
      <SlotMap
        label={`Fabric with ${plural(slots.length, "slot")}`}
        places={slots}
        look={look}
        active={active}
        onActive={setActive}
        related={shown?.jobId == null ? undefined : related}
        onOpen={open}
      />
      <ul className={placement.legend} aria-label="Who holds what">
        {holders.map((holder, i) => (
          <li key={holder.jobId}>
            <Swatch color={colors[i] ?? null} /> <HolderLink holder={holder} />
          </li>
        ))}
        <li>
          <Swatch color={null} /> free
        </li>
      </ul>
      <div className={placement.detail} aria-live="polite">
        {shown === undefined ? (
          <span className="dim">
            Point at a slot, or move with the arrow keys; Enter or a double click opens the job that holds it.
          </span>
        ) : (
          <SlotDetail slot={shown} />
        )}
      </div>
    </>
  );
}

function HolderLink({ holder }: { holder: Holder }) {
  return (
    <>
      <Link to="/jobs/$jobId" params={{ jobId: holder.jobId }}>
        {holder.name}
      </Link>
      <span className="dim">{plural(holder.slots, "slot")}</span>
    </>
  );
}

function SlotDetail({ slot }: { slot: PlacedSlot }) {
  const tiers = [
    slot.core === null ? null : `core ${slot.core}`,
    slot.spine === null ? null : `spine ${slot.spine}`,
    slot.leaf === null ? "leaf not known" : `leaf ${slot.leaf}`,
    slot.island === null ? "island not known" : `island ${slot.island}`,
    `node ${slot.node}`,
    `slot ${slot.index}`,
  ];
  return (
    <>
      <div>
        <strong>
          {slot.jobId === null ? (usable(slot) ? "Free" : "Out of use") : `Rank ${slot.rank ?? "–"} of ${slot.jobName ?? slot.jobId}`}
        </strong>
        {!slot.alive && ", the node is gone"}
        {slot.alive && !slot.schedulable && ", the node takes no new work"}
      </div>
      <div className="dim">{tiers.filter(Boolean).join(" · ")}</div>
    </>
  );
}
