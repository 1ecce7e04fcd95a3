import type { TimelineView } from "../api/queries";
import { percent } from "../format/numbers";
import { Table } from "../layout/Panel";
import { milliseconds, sums, WORK_NAMES, worksOf } from "./spans";

/** What each rank computed and where it idled: the drawing in numbers. */
export function RankSumsTable({ shown }: { shown: TimelineView }) {
  const works = worksOf(shown.ranks);
  return (
    <Table
      label="Work and idleness of each rank"
      head={
        <>
          <th scope="col" className="number">rank</th>
          {works.map((work) => (
            <th key={work} scope="col" className="number">
              {WORK_NAMES[work]}
            </th>
          ))}
          <th scope="col" className="number">idle before</th>
          <th scope="col" className="number">between</th>
          <th scope="col" className="number">after</th>
          <th scope="col" className="number">idle</th>
        </>
      }
    >
      {shown.ranks.map((rank) => {
        const { busy, before, between, after } = sums(rank, shown.window_us);
        return (
          <tr key={rank.rank}>
            <td className="number">{rank.rank}</td>
            {works.map((work) => (
              <td key={work} className="number">
                {milliseconds(rank.busy_us[work] ?? 0)}
              </td>
            ))}
            <td className="number">{milliseconds(before)}</td>
            <td className="number">{milliseconds(between)}</td>
            <td className="number">{milliseconds(after)}</td>
            <td className="number">{percent(shown.window_us - busy, shown.window_us)}</td>
          </tr>
        );
      })}
    </Table>
  );
}
