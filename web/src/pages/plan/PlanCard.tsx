import { Button } from "@mantine/core";
import type { AxisCost, EstimateView } from "../../api/queries";
import { bytes, metric, percent, tokensPerSecond } from "../../format/numbers";
import { exactly } from "../../format/time";
import { against, type Entry, MEMORY, partsOf, type Scale, SECONDS, settingsOf } from "./comparison";
import styles from "./plan.module.css";
import { PartTable, StackedBar } from "./StackedBar";

interface PlanCardProps {
  entry: Entry;
  own: EstimateView | null;
  scale: Scale;
  /** A submission of this plan is under way. */
  pending: boolean;
  disabled: boolean;
  onSubmit: () => void;
  onEdit: () => void;
}

/** One plan as a row of the comparison; on narrow screens as a card. */
export function PlanCard({ entry: { place, estimate }, own, scale, pending, disabled, onSubmit, onEdit }: PlanCardProps) {
  const seconds = partsOf(estimate.seconds, SECONDS);
  const memory = partsOf(estimate.memory_bytes, MEMORY);
  const compared = place === null ? "the job's own plan" : against(own, estimate);
  return (
    <article className={styles.plan} data-own={place === null || undefined} aria-label={`Plan ${estimate.plan}`}>
      <div>
        <h3>
          {place !== null && <span className="dim">{place}. </span>}
          {estimate.plan}
        </h3>
        <div className="dim">{settingsOf(estimate)}</div>
        {compared !== null && <div>{compared}</div>}
        {!estimate.fits && <strong className={styles.misfit}>does not fit into memory</strong>}
      </div>
      <div>
        <div className={styles.figure}>
          <strong>{exactly(estimate.step_s)}</strong> <span className="dim">a step</span>
          <span className={styles.aside}>
            MFU {percent(estimate.mfu, 1)} ({estimate.mfu_convention})
          </span>
        </div>
        <StackedBar label="Step" parts={seconds} order={SECONDS} full={scale.step} format={exactly} />
        <div className="dim">
          {tokensPerSecond(estimate.tokens_per_s)}, {gpuHours(estimate.budget_gpu_hours)}
        </div>
      </div>
      <div>
        <div className={styles.figure}>
          <strong>{bytes(estimate.memory_total_bytes)}</strong>{" "}
          <span className="dim">of {bytes(estimate.memory_limit_bytes)}</span>
        </div>
        <StackedBar
          label="Memory of the fullest rank"
          parts={memory}
          order={MEMORY}
          full={scale.memory}
          limit={estimate.memory_limit_bytes}
          format={bytes}
        />
        <div className="dim">{estimate.accelerator}, fullest rank</div>
      </div>
      <AxisCosts axes={estimate.axes} />
      <div className={styles.actions}>
        <Button
          size="compact-sm"
          variant={place === 1 ? "filled" : "default"}
          loading={pending}
          disabled={disabled}
          aria-label={`Submit with this plan, ${estimate.plan}`}
          onClick={onSubmit}
        >
          Submit with this plan
        </Button>
        <Button size="compact-sm" variant="subtle" aria-label={`Edit the job file with plan ${estimate.plan}`} onClick={onEdit}>
          Edit the job file
        </Button>
      </div>
      <details className={styles.details}>
        <summary>Figures</summary>
        <div className={styles.tables}>
          <PartTable label={`Seconds of a step, plan ${estimate.plan}`} parts={seconds} format={exactly} />
          <PartTable label={`Memory, plan ${estimate.plan}`} parts={memory} format={bytes} />
        </div>
      </details>
    </article>
  );
}

function gpuHours(hours: number): string {
  return hours < 1 ? "under a GPU-hour in all" : `${metric(hours)} GPU-hours in all`;
}

/** What each axis sends in a step, on which tier, and what of it nothing hides. */
function AxisCosts({ axes }: { axes: AxisCost[] }) {
  if (axes.length === 0) return <div className="dim">nothing to send</div>;
  return (
    <table className={styles.axes} aria-label="Communication of a step by axis">
      <thead>
        <tr>
          <th scope="col">axis</th>
          <th scope="col">tier</th>
          <th scope="col" className="number">sent</th>
          <th scope="col" className="number">waiting</th>
        </tr>
      </thead>
      <tbody>
        {axes.map(({ axis, degree, tier, link, sent_bytes: sent, exposed_s: exposed }) => (
          <tr key={axis}>
            <th scope="row">
              {axis} <span className="dim">{degree}</span>
            </th>
            <td title={link}>{tier}</td>
            <td className="number">{bytes(sent)}</td>
            <td className="number">{exactly(exposed)}</td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}
