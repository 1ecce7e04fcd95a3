import { Button } from "@mantine/core";
import { Link } from "@tanstack/react-router";
import { useState } from "react";
import type { NodeView } from "../../api/queries";
import { count } from "../../format/numbers";
import { age, localTime } from "../../format/time";
import { useNow } from "../../layout/clock";
import { Table } from "../../layout/Panel";
import placement from "../../placement/placement.module.css";
import styles from "./cluster.module.css";
import { holdersOf, slotsOf } from "./slots";

const PAGE = 100;

/** Nodes as a table: the same facts as the drawing. */
export function NodeTable({ nodes }: { nodes: NodeView[] }) {
  const now = useNow();
  const [page, setPage] = useState(0);
  const pages = Math.max(1, Math.ceil(nodes.length / PAGE));
  const start = Math.min(page, pages - 1) * PAGE;
  return (
    <>
      <Table
        label="Nodes"
        head={
          <>
            <th scope="col">Node</th>
            <th scope="col">State</th>
            <th scope="col">Leaf</th>
            <th scope="col">Island</th>
            <th scope="col">Accelerator</th>
            <th scope="col" className="number">Free slots</th>
            <th scope="col">Held by</th>
            <th scope="col" className="number">Last seen</th>
          </>
        }
      >
        {nodes.slice(start, start + PAGE).map((node) => (
          <NodeRow key={node.name} node={node} now={now} />
        ))}
      </Table>
      {pages > 1 && (
        <div className={placement.pager}>
          <span className="dim">
            {count(start + 1)} to {count(Math.min(start + PAGE, nodes.length))} of {count(nodes.length)} nodes
          </span>
          <Button size="compact-xs" variant="default" disabled={page === 0} onClick={() => setPage(page - 1)}>
            Previous
          </Button>
          <Button size="compact-xs" variant="default" disabled={page >= pages - 1} onClick={() => setPage(page + 1)}>
            Next
          </Button>
        </div>
      )}
    </>
  );
}

function NodeRow({ node, now }: { node: NodeView; now: number }) {
  const free = node.slots.filter((slot) => slot.job_id === null).length;
  const state = !node.alive ? "gone" : node.schedulable ? "alive" : "takes no work";
  return (
    <tr>
      <td>
        <strong>{node.name}</strong>
      </td>
      <td className={`nowrap ${styles.nodeState}`} data-state={state}>
        {state}
      </td>
      <td>{node.leaf ?? "not known"}</td>
      <td>{node.island ?? "not known"}</td>
      <td>{node.accelerator ?? "not known"}</td>
      <td className="number">
        {node.alive && node.schedulable ? free : 0} of {node.slots.length}
      </td>
      <td>
        {holdersOf(slotsOf([node])).map((holder) => (
          <div key={holder.jobId}>
            <Link to="/jobs/$jobId" params={{ jobId: holder.jobId }}>
              {holder.name}
            </Link>{" "}
            <span className="dim">({holder.slots})</span>
          </div>
        ))}
      </td>
      <td className="number" title={localTime(node.last_seen)}>
        {age(node.last_seen, now)} ago
      </td>
    </tr>
  );
}
