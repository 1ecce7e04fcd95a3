import type { PlanAnswer } from "../../api/queries";
import { exactly } from "../../format/time";
import { Panel, Table } from "../../layout/Panel";

/** Whether the job's own plan finds room now, and what its axes cost where it would lie. */
export function PlacedNow({ answer }: { answer: PlanAnswer }) {
  const tiers = [...new Set(answer.costs.flatMap(({ by_tier: seconds }) => Object.keys(seconds)))];
  if (!answer.fits) {
    return (
      <Panel title="The job's own plan, placed now">
        <p>{answer.ever ? "It would be queued until there is room." : "It can never fit on this cluster."}</p>
        <p className="dim">{[answer.refusal, ...answer.changes].filter(Boolean).join(" ")}</p>
      </Panel>
    );
  }
  return (
    <Panel title="The job's own plan, placed now" flush>
      <Table
        label="Seconds of communication by axis and tier, as placed"
        head={
          <>
            <th scope="col">Axis</th>
            {tiers.map((tier) => (
              <th key={tier} scope="col" className="number">
                on {tier} links
              </th>
            ))}
            <th scope="col" className="number">Slowest</th>
            <th scope="col">Held up by</th>
          </>
        }
      >
        {answer.costs.map(({ axis, by_tier: seconds, seconds: slowest, uplink, overlapped, widest }) => (
          <tr key={axis}>
            <td>
              <strong>{axis}</strong>
            </td>
            {tiers.map((tier) => (
              <td key={tier} className="number">
                {seconds[tier] === undefined ? "–" : exactly(seconds[tier])}
              </td>
            ))}
            <td className="number">{exactly(slowest)}</td>
            <td>
              {uplink === null ? `the rank's own link, within one ${widest}` : `uplink of ${uplink}`}
              {overlapped && <span className="dim">, sent while backward computes</span>}
            </td>
          </tr>
        ))}
      </Table>
    </Panel>
  );
}
