import { useQuery } from "@tanstack/react-query";
import { blameQuery } from "../../api/queries";
import { count } from "../../format/numbers";
import { exactly } from "../../format/time";
import { Panel, Table } from "../../layout/Panel";

/** Nodes that were slow, counted over attempts and jobs; nothing while there is none. */
export function SlowNodes() {
  const items = useQuery(blameQuery()).data?.items ?? [];
  if (items.length === 0) return null;
  return (
    <Panel title="Nodes that were slow" flush>
      <Table
        label="Nodes that were slow"
        head={
          <>
            <th scope="col">Node</th>
            <th scope="col" className="number">Attempts</th>
            <th scope="col" className="number">Jobs</th>
            <th scope="col" className="number">Cost</th>
            <th scope="col">Said last</th>
          </>
        }
      >
        {items.map((one) => (
          <tr key={one.node}>
            <td>
              <strong>{one.node}</strong>
            </td>
            <td className="number">{count(one.attempts)}</td>
            <td className="number">{count(one.jobs)}</td>
            <td className="number">{exactly(one.cost_s)}</td>
            <td>{one.newest}</td>
          </tr>
        ))}
      </Table>
    </Panel>
  );
}
