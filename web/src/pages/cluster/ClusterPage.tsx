import { useQuery } from "@tanstack/react-query";
import { getRouteApi, useNavigate } from "@tanstack/react-router";
import type { ReactNode } from "react";
import { type ClusterView, clusterQuery } from "../../api/queries";
import { FabricExplorer } from "../../fabric/FabricExplorer";
import { count } from "../../format/numbers";
import layout from "../../layout/layout.module.css";
import { Failure, Loading, Notice } from "../../layout/Notice";
import { Facts, Panel } from "../../layout/Panel";
import { useTitle } from "../../layout/title";
import styles from "./cluster.module.css";
import { GoodputTotals } from "./GoodputTotals";
import { NodeTable } from "./NodeTable";
import { SlowNodes } from "./SlowNodes";

const route = getRouteApi("/cluster");

export function ClusterPage() {
  useTitle("Cluster");
  const query = useQuery(clusterQuery());
  const cluster = query.data;
  return (
    <>
      <div className={layout.pageHead}>
        <h1>Cluster</h1>
      </div>
      {cluster !== undefined ? (
        <Cluster cluster={cluster} />
      ) : query.failureReason === null ? (
        <Loading label="Loading the cluster" rows={8} height={32} />
      ) : (
        <Failure
          title="The cluster could not be loaded"
          error={query.failureReason}
          onRetry={() => void query.refetch()}
        />
      )}
    </>
  );
}

function Cluster({ cluster }: { cluster: ClusterView }) {
  const { at } = route.useSearch();
  const navigate = useNavigate();
  const alive = cluster.nodes.filter((node) => node.alive).length;
  const held = cluster.nodes.flatMap((node) => node.slots).filter((slot) => slot.job_id !== null).length;
  const facts: [string, ReactNode][] = [
    ["Controller", <Health key="controller" value={cluster.controller} />],
    ["Ray cluster", <Health key="cluster" value={cluster.cluster} />],
    ["Nodes", alive === cluster.nodes.length ? count(alive) : `${count(alive)} of ${count(cluster.nodes.length)} alive`],
    ["Slots", count(cluster.total_slots)],
    ["Held", count(held)],
    ["Free", count(cluster.free_slots)],
  ];
  return (
    <div className={styles.page}>
      <Facts items={facts} />
      <Problems problems={cluster.problems} />
      {cluster.nodes.length === 0 ? (
        <Panel title="Fabric">
          <Notice title="No node is known">
            Nodes appear when the controller has reached the Ray cluster. Give it one with <code>--ray-address</code>,
            or start a local one with <code>--local</code>.
          </Notice>
        </Panel>
      ) : (
        <FabricExplorer
          nodes={cluster.nodes}
          problems={cluster.problems}
          at={at}
          onAt={(id) => void navigate({ to: "/cluster", search: { at: id } })}
        >
          {(nodes, domain) => (
            <Panel title={`Nodes of ${domain}`} flush>
              <NodeTable key={domain} nodes={nodes} />
            </Panel>
          )}
        </FabricExplorer>
      )}
      <SlowNodes />
      <GoodputTotals />
    </div>
  );
}

function Health({ value }: { value: string }) {
  return (
    <span className={styles.health} data-up={value === "up" || undefined}>
      <svg width="12" height="12" viewBox="0 0 12 12" aria-hidden="true" fill="none" stroke="currentColor" strokeWidth="1.8">
        {value === "up" ? <path d="M1.5 6.5l3 3 6-7" /> : <path d="M2 2l8 8M10 2l-8 8" />}
      </svg>
      {value}
    </span>
  );
}

/** Problems named at once; the others fold out. */
const NAMED = 6;

function Problems({ problems }: { problems: string[] }) {
  if (problems.length === 0) return null;
  const more = problems.slice(NAMED);
  return (
    <section className={styles.problems} aria-label="Problems" role="status">
      <h2>{problems.length === 1 ? "A problem" : `${count(problems.length)} problems`}</h2>
      <ProblemList problems={problems.slice(0, NAMED)} />
      {more.length > 0 && (
        <details>
          <summary>{count(more.length)} more</summary>
          <ProblemList problems={more} />
        </details>
      )}
    </section>
  );
}

function ProblemList({ problems }: { problems: string[] }) {
  return (
    <ul>
      {problems.map((problem) => (
        <li key={problem}>{problem}</li>
      ))}
    </ul>
  );
}
