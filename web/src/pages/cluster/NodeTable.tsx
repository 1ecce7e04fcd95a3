import { Link } from "@tanstack/react-router";
import { useState } from "react";
import type { NodeView } from "../../api/queries";
import { holdersOf, conditionOf } from "../../fabric/occupancy";
import { age, localTime } from "../../format/time";
import { useNow } from "../../layout/clock";
import { Pager } from "../../layout/Pager";
import { Table } from "../../layout/Panel";
import styles from "./cluster.module.css";

const PAGE = 25;

/** Nodes as a table: the same facts as the drawing. */
export function NodeTable({ nodes }: { nodes: NodeView[] }) {
  const now = useNow();
  const [wanted, setStart] = useState(0);
  const start = wanted < nodes.length ? wanted : 0;
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
      <Pager start={start} page={PAGE} total={nodes.length} noun="node" onStart={setStart} />
    </>
  );
}

function NodeRow({ node, now }: { node: NodeView; now: number }) {
  const free = node.slots.filter((slot) => slot.job_id === null).length;
  const state = conditionOf(node);
  return (
    <tr>
      <td>
        <strong>{node.name}</strong>
      </td>
      <td className={`nowrap ${styles.nodeState}`} data-state={state}>
        {state}
        {node.cordon !== null && (
          <div className="dim" title={localTime(node.cordon.at)}>
            {node.cordon.who}: {node.cordon.reason}
          </div>
        )}
      </td>
      <td>{node.leaf ?? "not known"}</td>
      <td>{node.island ?? "not known"}</td>
      <td>{node.accelerator ?? "not known"}</td>
      <td className="number">
        {node.alive && node.schedulable ? free : 0} of {node.slots.length}
      </td>
      <td className={styles.held}>
        {holdersOf([node]).map((holder) => (
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
