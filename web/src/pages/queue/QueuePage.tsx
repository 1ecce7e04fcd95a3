import { Button } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { getRouteApi, Link } from "@tanstack/react-router";
import type { ReactNode } from "react";
import { PAGE_SIZE, type QueueView, queueQuery } from "../../api/queries";
import { count, plural } from "../../format/numbers";
import { duration } from "../../format/time";
import layout from "../../layout/layout.module.css";
import { Failure, Loading, Notice } from "../../layout/Notice";
import { Facts, Panel } from "../../layout/Panel";
import { useTitle } from "../../layout/title";
import { ProjectTable } from "./ProjectTable";
import { QueueTable } from "./QueueTable";
import styles from "./queue.module.css";

const route = getRouteApi("/queue");

/** Jobs that wait, in the order in which the controller looks at them, and what each project has. */
export function QueuePage() {
  useTitle("Queue");
  const { after = 0 } = route.useSearch();
  const query = useQuery(queueQuery(after));
  return (
    <>
      <div className={layout.pageHead}>
        <h1>Queue</h1>
      </div>
      {query.data !== undefined ? (
        <Queue queue={query.data} after={after} />
      ) : query.failureReason === null ? (
        <Loading label="Loading the queue" rows={8} height={28} />
      ) : (
        <Failure title="The queue could not be loaded" error={query.failureReason} onRetry={() => void query.refetch()} />
      )}
    </>
  );
}

function Queue({ queue, after }: { queue: QueueView; after: number }) {
  return (
    <div className={styles.page}>
      <Facts items={facts(queue)} />
      <section className={layout.panel} aria-label="Waiting jobs">
        {queue.items.length > 0 ? (
          <QueueTable jobs={queue.items} />
        ) : queue.total > 0 ? (
          <Notice title="The queue is shorter now" actions={<Link to="/queue">To its head</Link>}>
            {plural(queue.total, "job")} in all.
          </Notice>
        ) : (
          <Notice title="No job waits" actions={<Link to="/submit">Submit a job</Link>}>
            Every job that was submitted has its slots, or has ended.
          </Notice>
        )}
      </section>
      {queue.total > PAGE_SIZE && <Pages total={queue.total} after={after} shown={queue.items.length} />}
      {queue.projects.length > 0 && (
        <Panel title="Projects" flush>
          <ProjectTable projects={queue.projects} />
        </Panel>
      )}
    </div>
  );
}

function facts({ total, policy }: QueueView): [string, ReactNode][] {
  const waiting: [string, ReactNode] = ["Waiting jobs", count(total)];
  if (policy === null) return [waiting, ["Policy", "not told by a controller yet"]];
  return [
    waiting,
    ["Goes first after", duration(policy.starvation_s)],
    ["Slots are kept for", plural(policy.reservations, "job")],
    ["Preemption", policy.preemption ? "on" : "off"],
    ["Use counts half after", duration(policy.half_life_s)],
  ];
}

function Pages({ total, after, shown }: { total: number; after: number; shown: number }) {
  const navigate = route.useNavigate();
  const go = (to: number) => void navigate({ search: { after: to > 0 ? to : undefined } });
  return (
    <nav className={styles.pager} aria-label="Pages of the queue">
      <span className="dim">
        {count(after + 1)} to {count(after + shown)} of {plural(total, "job")}
      </span>
      <Button size="xs" variant="default" disabled={after === 0} onClick={() => go(Math.max(0, after - PAGE_SIZE))}>
        Previous {PAGE_SIZE}
      </Button>
      <Button size="xs" variant="default" disabled={after + shown >= total} onClick={() => go(after + PAGE_SIZE)}>
        Next {PAGE_SIZE}
      </Button>
    </nav>
  );
}
