import { useQuery } from "@tanstack/react-query";
import { getRouteApi, Link } from "@tanstack/react-router";
import { useMemo } from "react";
import { ProblemError } from "../../api/problem";
import { type EventView, type JobDetail, jobQuery, metricHistory, type MetricView } from "../../api/queries";
import { type StreamSource, useStream } from "../../api/useStream";
import { appendPoints, NO_STEPS, type Series } from "../../charts/series";
import { Failure, Loading, Notice } from "../../layout/Notice";
import { useTitle } from "../../layout/title";
import { Curves } from "./Curves";
import { JobHeader } from "./JobHeader";
import { JobTabs } from "./JobTabs";
import styles from "./job.module.css";
import { PlacementPanel } from "./PlacementPanel";

const route = getRouteApi("/jobs/$jobId");

export function JobPage() {
  const { jobId } = route.useParams();
  const query = useQuery(jobQuery(jobId));
  const job = query.data;
  useTitle(job?.name ?? "Job", job?.state);

  if (job !== undefined) return <Job key={job.id} job={job} />;
  const { failureReason } = query;
  if (failureReason instanceof ProblemError && failureReason.status === 404) {
    return (
      <Notice title="There is no such job" actions={<Link to="/jobs">All jobs</Link>}>
        No job here has the id {jobId}.
      </Notice>
    );
  }
  if (failureReason !== null) {
    return <Failure title="The job could not be loaded" error={failureReason} onRetry={() => void query.refetch()} />;
  }
  return <Loading label="Loading the job" rows={9} height={32} />;
}

/** More points than a chart has pixels help nobody. */
const HISTORY_POINTS = 2_000;
const NO_EVENTS: EventView[] = [];

function Job({ job }: { job: JobDetail }) {
  const base = `/api/v1/jobs/${job.id}`;
  const jobId = job.id;
  const metrics = useMemo<StreamSource<MetricView, Series>>(
    () => ({
      url: `${base}/metrics/stream`,
      empty: NO_STEPS,
      fold: appendPoints,
      history: (signal) => metricHistory(jobId, HISTORY_POINTS, signal),
    }),
    [base, jobId],
  );
  const events = useMemo<StreamSource<EventView, EventView[]>>(
    () => ({ url: `${base}/events/stream`, empty: NO_EVENTS, fold: (held, items) => [...held, ...items] }),
    [base],
  );
  const { held: series, phase } = useStream(metrics);
  const { held: history } = useStream(events);

  return (
    <>
      <JobHeader job={job} series={series} />
      <div className={styles.columns}>
        <Curves job={job} series={series} events={history} phase={phase} />
        <PlacementPanel job={job} />
      </div>
      <JobTabs job={job} series={series} events={history} />
    </>
  );
}
