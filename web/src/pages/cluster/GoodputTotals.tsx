import { SegmentedControl } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { type ClusterGoodput, clusterGoodputQuery } from "../../api/queries";
import { count, percent, plural } from "../../format/numbers";
import { gpuTime } from "../../goodput/classes";
import { Waterfall } from "../../goodput/Waterfall";
import { Failure, Loading, Notice } from "../../layout/Notice";
import { Panel, Table } from "../../layout/Panel";
import styles from "./cluster.module.css";

const SPANS = [
  { value: "1", label: "1 hour" },
  { value: "24", label: "1 day" },
  { value: "168", label: "1 week" },
];

/** Where the GPU time of all jobs went lately, together and by project. */
export function GoodputTotals() {
  const [hours, setHours] = useState("24");
  const query = useQuery(clusterGoodputQuery(Number(hours)));
  return (
    <Panel
      title="Goodput of all jobs"
      actions={
        <SegmentedControl size="xs" data={SPANS} value={hours} onChange={setHours} aria-label="Span of time" />
      }
    >
      {query.data !== undefined ? (
        <Totals found={query.data} />
      ) : query.failureReason === null ? (
        <Loading label="Adding up GPU time" rows={8} />
      ) : (
        <Failure
          title="Goodput could not be loaded"
          error={query.failureReason}
          onRetry={() => void query.refetch()}
        />
      )}
    </Panel>
  );
}

function Totals({ found }: { found: ClusterGoodput }) {
  if (found.jobs === 0) return <Notice title="No job">No job waited or held a GPU in this time.</Notice>;
  return (
    <div className={styles.page}>
      <Waterfall ledger={found} label={`GPU time of ${plural(found.jobs, "job")} by class`} />
      <Table
        label="Goodput by project"
        head={
          <>
            <th scope="col">Project</th>
            <th scope="col" className="number">Jobs</th>
            <th scope="col" className="number">Held</th>
            <th scope="col" className="number">Goodput</th>
            <th scope="col" className="number">Effective training time</th>
          </>
        }
      >
        {found.projects.map((project) => (
          <tr key={project.project}>
            <td>{project.project}</td>
            <td className="number">{count(project.jobs)}</td>
            <td className="number">{gpuTime(project.held_gpu_seconds)}</td>
            <td className="number">{percent(project.goodput * project.held_gpu_seconds, project.held_gpu_seconds)}</td>
            <td className="number">{percent(project.ettr, 1)}</td>
          </tr>
        ))}
      </Table>
    </div>
  );
}
