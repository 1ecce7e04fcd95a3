import { useNavigate } from "@tanstack/react-router";
import type { JobDetail, PlacementView } from "../../api/queries";
import { localTime } from "../../format/time";
import { Notice } from "../../layout/Notice";
import { Panel } from "../../layout/Panel";
import { AxisList } from "../../placement/AxisList";
import { RankMap } from "../../placement/RankMap";
import styles from "./job.module.css";

/** Where the ranks sit, and whether they have proved it. */
export function PlacementPanel({ job }: { job: JobDetail }) {
  const navigate = useNavigate();
  const { placement } = job;
  if (placement === null) {
    return (
      <Panel title="Placement">
        <Notice title="Not placed">
          {job.finished_at === null
            ? "Ranks get their places all at once, when all of them fit. The reason above says what is missing."
            : "The job ended before it was placed."}
        </Notice>
      </Panel>
    );
  }
  return (
    <Panel title="Placement" actions={<Certificate placement={placement} />}>
      <RankMap
        ranks={placement.ranks}
        onOpen={(rank) =>
          void navigate({ to: "/jobs/$jobId", params: { jobId: job.id }, search: { tab: "logs", rank }, resetScroll: false })
        }
      />
      <AxisList axes={placement.axes} />
      {placement.explanation.length > 0 && (
        <details className={styles.why}>
          <summary>Why here</summary>
          <ul>
            {placement.explanation.map((line) => (
              <li key={line}>{line}</li>
            ))}
          </ul>
        </details>
      )}
      <p className="dim">
        {placement.incarnation > 1 && `Placement ${placement.incarnation}. `}
        Placed {localTime(placement.placed_at)}
        {placement.released_at !== null && `, slots free again ${localTime(placement.released_at)}`}.
      </p>
    </Panel>
  );
}

function Certificate({ placement }: { placement: PlacementView }) {
  return (
    <span
      className={styles.certificate}
      data-certified={placement.certified || undefined}
      title={
        placement.certified
          ? "Before step 0 every running rank reported where it is, and every group meets its tier."
          : "Ranks prove where they sit after they start, before step 0."
      }
    >
      <svg width="12" height="12" viewBox="0 0 12 12" aria-hidden="true" fill="none" stroke="currentColor" strokeWidth="1.8">
        {placement.certified ? <path d="M1.5 6.5l3 3 6-7" /> : <circle cx="6" cy="6" r="4.5" strokeDasharray="2.2 2" />}
      </svg>
      {placement.certified ? "certified" : "not certified yet"}
    </span>
  );
}
