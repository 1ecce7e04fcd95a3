import { Button } from "@mantine/core";
import { useState } from "react";
import type { RankView } from "../api/queries";
import { count } from "../format/numbers";
import { Table } from "../layout/Panel";
import { type AxisDegree, coordinateName } from "./axes";
import styles from "./placement.module.css";

const PAGE = 64;

/** The placement as a table: the same facts as the drawing. */
export function RankTable({ ranks, axes }: { ranks: RankView[]; axes: AxisDegree[] }) {
  const [page, setPage] = useState(0);
  const pages = Math.max(1, Math.ceil(ranks.length / PAGE));
  const start = Math.min(page, pages - 1) * PAGE;
  return (
    <>
      <Table
        label="Ranks and where they sit"
        head={
          <>
            <th scope="col" className="number">rank</th>
            {axes.map(({ axis }) => (
              <th key={axis} scope="col" className="number">
                {coordinateName(axis)}
              </th>
            ))}
            <th scope="col">leaf</th>
            <th scope="col">island</th>
            <th scope="col">node</th>
            <th scope="col" className="number">slot</th>
            <th scope="col" className="number">pid</th>
            <th scope="col">device</th>
          </>
        }
      >
        {ranks.slice(start, start + PAGE).map((rank) => (
          <tr key={rank.rank}>
            <td className="number">{rank.rank}</td>
            {axes.map(({ axis }) => (
              <td key={axis} className="number">
                {rank.coordinates[axis] ?? 0}
              </td>
            ))}
            <td>{rank.leaf ?? "not known"}</td>
            <td>{rank.island ?? "not known"}</td>
            <td>{rank.node}</td>
            <td className="number">{rank.index}</td>
            <td className="number">{rank.pid ?? "–"}</td>
            <td>{rank.device ?? "–"}</td>
          </tr>
        ))}
      </Table>
      {pages > 1 && (
        <div className={styles.pager}>
          <span className="dim">
            {count(start + 1)} to {count(Math.min(start + PAGE, ranks.length))} of {count(ranks.length)} ranks
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
