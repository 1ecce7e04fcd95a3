import { isTerminal, type JobDetail } from "../../api/queries";
import { count } from "../../format/numbers";
import { duration, localTime, secondsBetween } from "../../format/time";
import { useNow } from "../../layout/clock";
import { Notice } from "../../layout/Notice";
import { Table } from "../../layout/Panel";
import { firstLine } from "../../state/states";

/** The lives of the gang, newest first. */
export function AttemptTable({ job }: { job: JobDetail }) {
  const now = useNow(!isTerminal(job.state));
  if (job.attempts.length === 0) {
    return <Notice title="No attempt yet">An attempt begins when the ranks are started.</Notice>;
  }
  return (
    <Table
      label="Attempts"
      head={
        <>
          <th scope="col" className="number">Attempt</th>
          <th scope="col" className="number">Placement</th>
          <th scope="col">Outcome</th>
          <th scope="col">Started</th>
          <th scope="col" className="number">Lasted</th>
          <th scope="col" className="number">From step</th>
          <th scope="col" className="number">To step</th>
          <th scope="col">Message</th>
        </>
      }
    >
      {job.attempts.toReversed().map((attempt) => (
        <tr key={attempt.number}>
          <td className="number">{attempt.number}</td>
          <td className="number">{attempt.incarnation}</td>
          <td className="nowrap">{attempt.outcome ?? "under way"}</td>
          <td className="nowrap">{localTime(attempt.started_at)}</td>
          <td className="number">{duration(secondsBetween(attempt.started_at, attempt.ended_at, now))}</td>
          <td className="number">{count(attempt.start_step)}</td>
          <td className="number">{count(attempt.end_step)}</td>
          <td>{firstLine(attempt.message)}</td>
        </tr>
      ))}
    </Table>
  );
}
