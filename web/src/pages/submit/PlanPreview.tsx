import type { PlanAnswer } from "../../api/queries";
import { plural } from "../../format/numbers";
import { Panel } from "../../layout/Panel";
import { AxisList } from "../../placement/AxisList";
import { RankMap } from "../../placement/RankMap";
import styles from "./submit.module.css";

/** Where the job would run now, or what is missing. */
export function PlanPreview({ plan }: { plan: PlanAnswer }) {
  const size = `${plan.plan}, ${plural(plan.world_size, "rank")}`;
  if (!plan.fits) {
    return (
      <Panel title={`Plan: ${size}`}>
        <div className={styles.refusal}>
          <p>
            <strong>
              {plan.ever ? "It does not fit now. It would be queued until there is room." : "It can never fit on this cluster."}
            </strong>
          </p>
          {plan.refusal !== null && <p>{plan.refusal}</p>}
        </div>
        <Lines lines={plan.refusal_details} />
        <Lines lines={plan.changes} />
      </Panel>
    );
  }
  return (
    <Panel title={`Plan: ${size}`}>
      <p className={styles.fits}>It fits now. Every rank would run here:</p>
      <RankMap ranks={plan.ranks} />
      <AxisList axes={plan.axes} />
      <Lines lines={plan.explanation} />
    </Panel>
  );
}

function Lines({ lines }: { lines: string[] }) {
  if (lines.length === 0) return null;
  return (
    <ul className={styles.lines}>
      {lines.map((line) => (
        <li key={line}>{line}</li>
      ))}
    </ul>
  );
}
