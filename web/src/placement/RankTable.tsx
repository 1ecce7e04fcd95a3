import { useState } from "react";
import type { RankView } from "../api/queries";
import { Pager } from "../layout/Pager";
import { Table } from "../layout/Panel";
import { type AxisDegree, coordinateName } from "./axes";

const PAGE = 64;

/** The placement as a table: the same facts as the drawing. */
export function RankTable({ ranks, axes }: { ranks: RankView[]; axes: AxisDegree[] }) {
  const [wanted, setStart] = useState(0);
  const start = wanted < ranks.length ? wanted : 0;
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
      <Pager start={start} page={PAGE} total={ranks.length} noun="rank" onStart={setStart} />
    </>
  );
}
