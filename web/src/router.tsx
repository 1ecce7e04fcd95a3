import { createRootRoute, createRoute, createRouter, lazyRouteComponent, redirect } from "@tanstack/react-router";
import type { JobState } from "./api/queries";
import { NotFound } from "./layout/NotFound";
import { Failure, Loading } from "./layout/Notice";
import { Shell } from "./layout/Shell";
import { STATES } from "./state/states";

const root = createRootRoute({ component: Shell, notFoundComponent: NotFound });

const home = createRoute({
  getParentRoute: () => root,
  path: "/",
  beforeLoad: () => {
    throw redirect({ to: "/jobs" });
  },
});

export interface JobsSearch {
  state?: JobState | undefined;
  name?: string | undefined;
  cursor?: string | undefined;
}

function text(value: unknown): string | undefined {
  // A search value that looks like a number arrives as one: `?name=7`.
  const found = typeof value === "number" ? String(value) : value;
  return typeof found === "string" && found !== "" ? found : undefined;
}

const jobs = createRoute({
  getParentRoute: () => root,
  path: "/jobs",
  validateSearch: (search): JobsSearch => ({
    state: STATES.find((state) => state === search.state),
    name: text(search.name),
    cursor: text(search.cursor),
  }),
  component: lazyRouteComponent(() => import("./pages/jobs/JobsPage"), "JobsPage"),
});

export const JOB_TABS = [
  "events",
  "timeline",
  "cost",
  "health",
  "goodput",
  "logs",
  "checkpoints",
  "attempts",
  "spec",
] as const;
export type JobTab = (typeof JOB_TABS)[number];

export interface JobPageSearch {
  tab?: JobTab | undefined;
  /** Rank whose log is shown. */
  rank?: number | undefined;
  attempt?: number | undefined;
}

function whole(value: unknown): number | undefined {
  return typeof value === "number" && Number.isInteger(value) && value >= 0 ? value : undefined;
}

const job = createRoute({
  getParentRoute: () => root,
  path: "/jobs/$jobId",
  validateSearch: (search): JobPageSearch => ({
    tab: JOB_TABS.find((tab) => tab === search.tab),
    rank: whole(search.rank),
    attempt: whole(search.attempt),
  }),
  component: lazyRouteComponent(() => import("./pages/job/JobPage"), "JobPage"),
});

const cluster = createRoute({
  getParentRoute: () => root,
  path: "/cluster",
  /** `at`: the domain of the fabric that is shown, `leaf:l3`. */
  validateSearch: (search): { at?: string | undefined } => ({ at: text(search.at) }),
  component: lazyRouteComponent(() => import("./pages/cluster/ClusterPage"), "ClusterPage"),
});

const queue = createRoute({
  getParentRoute: () => root,
  path: "/queue",
  /** `after`: position behind which the page begins. */
  validateSearch: (search): { after?: number | undefined } => ({ after: whole(search.after) }),
  component: lazyRouteComponent(() => import("./pages/queue/QueuePage"), "QueuePage"),
});

const submit = createRoute({
  getParentRoute: () => root,
  path: "/submit",
  /** `from`: id of a job whose file is the start of a new one. */
  validateSearch: (search): { from?: string | undefined } => ({ from: text(search.from) }),
  component: lazyRouteComponent(() => import("./pages/submit/SubmitPage"), "SubmitPage"),
});

const plan = createRoute({
  getParentRoute: () => root,
  path: "/plan",
  /** `from`: id of a job whose file is compared. */
  validateSearch: (search): { from?: string | undefined } => ({ from: text(search.from) }),
  component: lazyRouteComponent(() => import("./pages/plan/PlanPage"), "PlanPage"),
});

export const router = createRouter({
  routeTree: root.addChildren([home, jobs, job, queue, cluster, plan, submit]),
  defaultPendingComponent: () => <Loading label="Loading the page" />,
  defaultErrorComponent: ({ error, reset }) => (
    <Failure title="This page could not be shown" error={error} onRetry={reset} />
  ),
  scrollRestoration: true,
});

declare module "@tanstack/react-router" {
  interface Register {
    router: typeof router;
  }
  interface HistoryState {
    /** A job file on its way from one editor to another. */
    draft?: string;
  }
}
