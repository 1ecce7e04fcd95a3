import { Link } from "@tanstack/react-router";
import type { JobSummary } from "../../api/queries";
import { isTerminal } from "../../api/queries";
import { loss, plural, tokensPerSecond } from "../../format/numbers";
import { age, duration, localTime, secondsBetween } from "../../format/time";
import { useNow } from "../../layout/clock";
import { Progress } from "../../state/Progress";
import { StateChip } from "../../state/StateChip";
import { firstLine, reasonSentence } from "../../state/states";
import styles from "./jobs.module.css";

/** Jobs as rows; on a narrow screen each row becomes a card. */
export function JobTable({ jobs }: { jobs: JobSummary[] }) {
  const now = useNow();
  return (
    <table className={styles.table}>
      <thead>
        <tr>
          <th scope="col">State</th>
          <th scope="col">Name</th>
          <th scope="col">Progress</th>
          <th scope="col" className="number">
            Loss, nats/token
          </th>
          <th scope="col" className="number">
            Throughput
          </th>
          <th scope="col">Plan</th>
          <th scope="col" className="number">
            Ran for
          </th>
          <th scope="col" className="number">
            Age
          </th>
        </tr>
      </thead>
      <tbody>
        {jobs.map((job) => (
          <JobRow key={job.id} job={job} now={now} />
        ))}
      </tbody>
    </table>
  );
}

function JobRow({ job, now }: { job: JobSummary; now: number }) {
  const reason = firstLine(reasonSentence(job));
  return (
    <tr>
      <td className={styles.state}>
        <StateChip state={job.state} />
      </td>
      <td className={styles.name}>
        <Link to="/jobs/$jobId" params={{ jobId: job.id }} className={styles.link}>
          {job.name}
        </Link>
        {reason !== "" && (
          <div className={styles.reason} title={reason}>
            {reason}
          </div>
        )}
      </td>
      <td className={styles.progress}>
        <Progress step={job.step} totalSteps={job.total_steps} state={job.state} />
      </td>
      <td className="number" data-label="nats/token">
        {loss(job.loss)}
      </td>
      <td className="number" data-label="throughput">
        {isTerminal(job.state) || job.state === "queued" ? <span className="dim">{tokensPerSecond(job.tokens_per_s)}</span> : tokensPerSecond(job.tokens_per_s)}
      </td>
      <td data-label="plan" className={styles.plan}>
        <span className="nowrap">{job.plan}</span>
        <div className="dim">
          {plural(job.world_size, "rank")}
          {job.restarts > 0 && `, ${plural(job.restarts, "restart")}`}
        </div>
      </td>
      <td className="number" data-label="ran for">
        {job.started_at === null ? "–" : duration(secondsBetween(job.started_at, job.finished_at, now))}
      </td>
      <td className="number" data-label="age">
        <time dateTime={job.created_at} title={localTime(job.created_at)}>
          {age(job.created_at, now)}
        </time>
      </td>
    </tr>
  );
}
