import { useQuery } from "@tanstack/react-query";
import { checkpointsQuery, isTerminal, type JobDetail } from "../../api/queries";
import { bytes, count } from "../../format/numbers";
import { localTime } from "../../format/time";
import { Failure, Loading, Notice } from "../../layout/Notice";
import { Table } from "../../layout/Panel";
import styles from "./job.module.css";

/** Checkpoints written, newest first. */
export function CheckpointTable({ job }: { job: JobDetail }) {
  const query = useQuery(checkpointsQuery(job.id, !isTerminal(job.state)));
  if (query.data === undefined) {
    if (query.failureReason === null) return <Loading label="Loading checkpoints" rows={4} height={28} />;
    return (
      <Failure
        title="Checkpoints could not be loaded"
        error={query.failureReason}
        onRetry={() => void query.refetch()}
      />
    );
  }
  if (query.data.items.length === 0) {
    return (
      <Notice title="No checkpoint yet">
        The job file&rsquo;s <code>checkpoint.every</code> sets the steps between them; 0 means only after the last.
      </Notice>
    );
  }
  return (
    <Table
      label="Checkpoints"
      head={
        <>
          <th scope="col" className="number">Step</th>
          <th scope="col">State</th>
          <th scope="col" className="number">Size</th>
          <th scope="col" className="number">Attempt</th>
          <th scope="col">Written</th>
          <th scope="col">Path</th>
        </>
      }
    >
      {query.data.items.map((checkpoint) => (
        <tr key={`${checkpoint.step} ${checkpoint.attempt}`}>
          <td className="number">{count(checkpoint.step)}</td>
          <td>
            <span className={styles.checkpoint} data-state={checkpoint.state}>
              {checkpoint.state}
            </span>
          </td>
          <td className="number">{bytes(checkpoint.bytes)}</td>
          <td className="number">{checkpoint.attempt}</td>
          <td className="nowrap">{localTime(checkpoint.created_at)}</td>
          <td className={`mono ${styles.path}`}>{checkpoint.path}</td>
        </tr>
      ))}
    </Table>
  );
}
