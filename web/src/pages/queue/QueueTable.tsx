import { Link } from "@tanstack/react-router";
import type { QueuedJobView } from "../../api/queries";
import { count, share } from "../../format/numbers";
import { duration, localTime } from "../../format/time";
import { StateChip } from "../../state/StateChip";
import { reasonSentence } from "../../state/states";
import styles from "./queue.module.css";

/** Waiting jobs as rows; on a narrow screen each row becomes a card. */
export function QueueTable({ jobs }: { jobs: QueuedJobView[] }) {
  return (
    <table className={styles.table}>
      <thead>
        <tr>
          <th scope="col" className="number">
            Turn
          </th>
          <th scope="col">Job</th>
          <th scope="col">Project</th>
          <th scope="col" className="number">
            Priority
          </th>
          <th scope="col" className="number">
            Share
          </th>
          <th scope="col" className="number">
            Slots
          </th>
          <th scope="col" className="number">
            Waited
          </th>
          <th scope="col">Kept for it</th>
        </tr>
      </thead>
      <tbody>
        {jobs.map((job) => (
          <QueueRow key={job.id} job={job} />
        ))}
      </tbody>
    </table>
  );
}

function QueueRow({ job }: { job: QueuedJobView }) {
  return (
    <tr>
      <td className={`number ${styles.turn}`} data-label="turn">
        {count(job.position)}
      </td>
      <td className={styles.job}>
        <Link to="/jobs/$jobId" params={{ jobId: job.id }} className={styles.link}>
          {job.name}
        </Link>{" "}
        {job.state !== "queued" && <StateChip state={job.state} />}
        <div className={styles.reason}>{reasonSentence(job)}</div>
      </td>
      <td data-label="project">{job.project}</td>
      <td className="number" data-label="priority">
        {count(job.priority)}
      </td>
      <td className="number" data-label="share">
        {share(job.share)}
      </td>
      <td className="number" data-label="slots">
        {count(job.world_size)}
      </td>
      <td className="number nowrap" data-label="waited">
        <time dateTime={job.created_at} title={`Submitted ${localTime(job.created_at)}`}>
          {duration(job.waited_s)}
        </time>
        {job.starved && <div className={styles.first}>goes first</div>}
      </td>
      <td data-label="kept for it" data-none={job.reservation === null || undefined} className={styles.kept}>
        <Kept reservation={job.reservation} />
      </td>
    </tr>
  );
}

function Kept({ reservation }: { reservation: QueuedJobView["reservation"] }) {
  if (reservation === null) return <span className="dim">–</span>;
  const { size, nodes, start_at } = reservation;
  const shown = nodes.slice(0, 3).join(", ");
  return (
    <>
      {count(size)} on {shown}
      {nodes.length > 3 && ` and ${count(nodes.length - 3)} more`}
      <div className="dim">
        {start_at === null ? "nobody knows when they are free" : `free at ${localTime(start_at)} at the latest`}
      </div>
    </>
  );
}
