/** What the pages ask for, as TanStack Query options: keys, refresh rates and calls in one place. */

import { keepPreviousData, queryOptions } from "@tanstack/react-query";
import { api, body } from "./client";
import type { components } from "./types";
import { ProblemError } from "./problem";

type Schemas = components["schemas"];
export type JobState = Schemas["JobState"];
export type Reason = Schemas["Reason"];
export type JobSummary = Schemas["JobSummary"];
export type JobDetail = Schemas["JobDetail"];
export type RankView = Schemas["RankView"];
export type AxisView = Schemas["AxisView"];
export type PlacementView = Schemas["PlacementView"];
export type EventView = Schemas["EventView"];
export type MetricView = Schemas["MetricView"];
export type StepCost = Schemas["StepCost"];
export type CheckpointView = Schemas["CheckpointView"];
export type ClusterView = Schemas["ClusterView"];
export type NodeView = Schemas["NodeView"];
export type QueueView = Schemas["QueueView"];
export type QueuedJobView = Schemas["QueuedJobView"];
export type ProjectView = Schemas["ProjectView"];
export type PlanAnswer = Schemas["PlanAnswer"];
export type EstimateView = Schemas["EstimateView"];
export type AxisCost = Schemas["AxisCost"];
export type LogView = Schemas["LogView"];
export type TimelineSummary = Schemas["TimelineSummary"];
export type TimelineView = Schemas["TimelineView"];
export type TimelineRank = TimelineView["ranks"][number];
export type TimelineSpan = TimelineRank["spans"][number];
export type Work = TimelineSpan[0];
export type ClusterGoodput = Schemas["ClusterGoodput"];

export type HealthView = Schemas["HealthView"];
export type FindingView = Schemas["FindingView"];
export type HeatMapBlock = Omit<Schemas["HeatMapBlockView"], "columns"> & { columns: [number, number, number][] };
export type HeatMapView = Omit<Schemas["HeatMapView"], "blocks"> & { blocks: HeatMapBlock[] };
export type NodeBlame = Schemas["NodeBlame"];

export const PAGE_SIZE = 50;
const LIST_REFRESH_MS = 2_000;
const JOB_REFRESH_MS = 1_500;
const CLUSTER_REFRESH_MS = 3_000;
const LARGE_CLUSTER_REFRESH_MS = 10_000;
/** A ledger adds up all that a job has done: of a million steps it takes a second. */
const LEDGER_REFRESH_MS = 10_000;
/** Sums over many jobs change slowly. */
const TOTALS_REFRESH_MS = 30_000;
/** Nodes above which the cluster is asked for less often: the answer is a megabyte then. */
const LARGE_CLUSTER = 500;

/** Rows of a heat map above which it is asked for less often: some megabytes then. */
const MANY_ROWS = 256;

const TERMINAL: ReadonlySet<string> = new Set(["succeeded", "failed", "cancelled"]);

export function isTerminal(state: string): boolean {
  return TERMINAL.has(state);
}

export interface JobFilter {
  state?: JobState | undefined;
  name?: string | undefined;
  cursor?: string | undefined;
}

export function jobsQuery(filter: JobFilter) {
  const { state, name, cursor } = filter;
  const query = { limit: PAGE_SIZE, name, cursor, state: state === undefined ? undefined : [state] };
  return queryOptions({
    queryKey: ["jobs", filter],
    queryFn: ({ signal }) =>
      body(api.GET("/api/v1/jobs", { params: { query }, signal })),
    refetchInterval: LIST_REFRESH_MS,
    placeholderData: keepPreviousData,
  });
}

export function jobQuery(jobId: string) {
  return queryOptions({
    queryKey: ["job", jobId],
    queryFn: ({ signal }) => body(api.GET("/api/v1/jobs/{job_id}", { params: { path: { job_id: jobId } }, signal })),
    refetchInterval: ({ state }) => {
      const over = state.data !== undefined && isTerminal(state.data.state);
      const unknown = state.error instanceof ProblemError && state.error.status === 404;
      return over || unknown ? false : JOB_REFRESH_MS;
    },
  });
}

export function checkpointsQuery(jobId: string, live: boolean) {
  return queryOptions({
    queryKey: ["checkpoints", jobId],
    queryFn: ({ signal }) =>
      body(api.GET("/api/v1/jobs/{job_id}/checkpoints", { params: { path: { job_id: jobId } }, signal })),
    refetchInterval: live ? CLUSTER_REFRESH_MS : false,
  });
}

export function timelinesQuery(jobId: string, live: boolean) {
  return queryOptions({
    queryKey: ["timelines", jobId],
    queryFn: ({ signal }) =>
      body(api.GET("/api/v1/jobs/{job_id}/timelines", { params: { path: { job_id: jobId } }, signal })),
    refetchInterval: live ? CLUSTER_REFRESH_MS : false,
  });
}

export function healthQuery(jobId: string, live: boolean) {
  return queryOptions({
    queryKey: ["health", jobId],
    queryFn: ({ signal }) =>
      body(api.GET("/api/v1/jobs/{job_id}/health", { params: { path: { job_id: jobId } }, signal })),
    refetchInterval: live ? CLUSTER_REFRESH_MS : false,
  });
}

/** Of the newest attempt when `attempt` is undefined. */
export function heatMapQuery(jobId: string, attempt: number | undefined, live: boolean) {
  return queryOptions({
    queryKey: ["heatmap", jobId, attempt],
    queryFn: async ({ signal }) => {
      const params = { path: { job_id: jobId }, query: { attempt } };
      // openapi-fetch makes plain arrays of tuples.
      return (await body(api.GET("/api/v1/jobs/{job_id}/health/heatmap", { params, signal }))) as HeatMapView;
    },
    refetchInterval: ({ state }) => {
      if (!live) return false;
      const { ranks = 0, ranks_a_row: each = 1 } = state.data ?? {};
      return ranks / each > MANY_ROWS ? LARGE_CLUSTER_REFRESH_MS : CLUSTER_REFRESH_MS;
    },
    placeholderData: keepPreviousData,
  });
}

/** A timeline never changes once it is there: a step that is trained again has another `at`. */
export function timelineQuery(jobId: string, which: TimelineSummary | undefined) {
  const query = { step: which?.step, attempt: which?.attempt };
  return queryOptions({
    queryKey: ["timeline", jobId, which?.attempt, which?.step, which?.at],
    queryFn: async ({ signal }) => {
      const params = { path: { job_id: jobId }, query };
      // openapi-fetch makes plain arrays of tuples.
      return (await body(api.GET("/api/v1/jobs/{job_id}/timeline", { params, signal }))) as TimelineView;
    },
    staleTime: Number.POSITIVE_INFINITY,
    placeholderData: keepPreviousData,
  });
}

export function goodputQuery(jobId: string, live: boolean) {
  return queryOptions({
    queryKey: ["goodput", jobId],
    queryFn: ({ signal }) =>
      body(api.GET("/api/v1/jobs/{job_id}/goodput", { params: { path: { job_id: jobId } }, signal })),
    refetchInterval: live ? LEDGER_REFRESH_MS : false,
  });
}

/** All jobs of the last `hours`. */
export function clusterGoodputQuery(hours: number) {
  return queryOptions({
    queryKey: ["cluster-goodput", hours],
    queryFn: ({ signal }) => {
      const since = new Date(Date.now() - hours * 3_600_000).toISOString();
      return body(api.GET("/api/v1/goodput", { params: { query: { since } }, signal }));
    },
    refetchInterval: TOTALS_REFRESH_MS,
  });
}

export function clusterQuery() {
  return queryOptions({
    queryKey: ["cluster"],
    queryFn: ({ signal }) => body(api.GET("/api/v1/cluster", { signal })),
    refetchInterval: ({ state }) =>
      (state.data?.nodes.length ?? 0) > LARGE_CLUSTER ? LARGE_CLUSTER_REFRESH_MS : CLUSTER_REFRESH_MS,
    // Every answer differs in when nodes were seen; comparing 10,000 slots would take longer than drawing them.
    structuralSharing: false,
  });
}

export function blameQuery() {
  return queryOptions({
    queryKey: ["blame"],
    queryFn: ({ signal }) => body(api.GET("/api/v1/blame", { signal })),
    refetchInterval: LARGE_CLUSTER_REFRESH_MS,
  });
}

/** `after`: position behind which the page begins. */
export function queueQuery(after: number) {
  const query = { limit: PAGE_SIZE, after };
  return queryOptions({
    queryKey: ["queue", after],
    queryFn: ({ signal }) => body(api.GET("/api/v1/queue", { params: { query }, signal })),
    refetchInterval: CLUSTER_REFRESH_MS,
    placeholderData: keepPreviousData,
  });
}

export async function metricHistory(jobId: string, points: number, signal: AbortSignal): Promise<MetricView[]> {
  const path = { job_id: jobId };
  const page = await body(api.GET("/api/v1/jobs/{job_id}/metrics", { params: { path, query: { points } }, signal }));
  return page.items;
}

export interface LogRequest {
  rank: number;
  attempt?: number | undefined;
  /** Bytes; negative counts from the end. */
  offset: number;
  limit: number;
}

export async function readLog(jobId: string, request: LogRequest, signal: AbortSignal): Promise<LogView> {
  return body(
    api.GET("/api/v1/jobs/{job_id}/logs", { params: { path: { job_id: jobId }, query: { ...request } }, signal }),
  );
}

export async function cancelJob(jobId: string): Promise<JobSummary> {
  return body(api.POST("/api/v1/jobs/{job_id}/cancel", { params: { path: { job_id: jobId } } }));
}

/** A job file goes to the server as it was written: it reads YAML, and JSON is YAML. */
const AS_TEXT = {
  headers: { "Content-Type": "application/yaml" },
  bodySerializer: (text: unknown) => String(text),
};

export async function checkPlan(jobFile: string): Promise<PlanAnswer> {
  return body(api.POST("/api/v1/plan", { ...AS_TEXT, body: jobFile as never }));
}

export interface PlanQuestion {
  jobFile: string;
  /** Accelerators that plans may use; those of the file's own plan when left out. */
  ranks?: number | undefined;
  /** Tokens that the time and the GPU-hours are of; those of the file's steps when left out. */
  tokens?: number | undefined;
}

/** The file's own plan and the fastest that are found. Takes seconds. */
export async function searchPlans({ jobFile, ranks, tokens }: PlanQuestion): Promise<PlanAnswer> {
  const query = { auto: true, ranks, tokens };
  return body(api.POST("/api/v1/plan", { ...AS_TEXT, body: jobFile as never, params: { query } }));
}

/** Submits once: the same key may be sent again after a lost answer and makes no second job. */
export async function submitJob(jobFile: string, idempotencyKey: string): Promise<JobSummary> {
  return body(
    api.POST("/api/v1/jobs", {
      ...AS_TEXT,
      body: jobFile as never,
      params: { header: { "idempotency-key": idempotencyKey } },
    }),
  );
}
