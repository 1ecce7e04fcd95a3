import { UnstyledButton } from "@mantine/core";
import { Link } from "@tanstack/react-router";
import { useState } from "react";
import { count, plural } from "../format/numbers";
import { Pager } from "../layout/Pager";
import { Panel, Table } from "../layout/Panel";
import styles from "./fabric.module.css";
import { type Counts, countsOf, indexOf, type Occupancy, conditionOf } from "./occupancy";
import { type Domain, titleOf } from "./tree";

const PAGE = 50;
const NAMED_JOBS = 3;

interface ContentsProps {
  domain: Domain;
  occupancy: Occupancy;
  onEnter: (domain: Domain) => void;
}

/** What the shown domain consists of, as a table to walk through: the drawing in words. */
export function Contents({ domain, occupancy, onEnter }: ContentsProps) {
  const [start, setStart] = useState(0);
  const { children } = domain;
  const shown = children.slice(start, start + PAGE);
  const title = domain.tier === "fabric" ? "Inside the fabric" : `Inside ${titleOf(domain)}`;
  return (
    <Panel title={title} flush>
      {children[0]?.tier === "slot" ? (
        <Table
          label={title}
          head={
            <>
              <th scope="col">Slot</th>
              <th scope="col">State</th>
              <th scope="col">Island</th>
              <th scope="col" className="number">Rank</th>
              <th scope="col">Job</th>
            </>
          }
        >
          {shown.map((slot) => (
            <SlotRow key={slot.id} slot={slot} occupancy={occupancy} />
          ))}
        </Table>
      ) : (
        <Table
          label={title}
          head={
            <>
              <th scope="col">Domain</th>
              <th scope="col">State</th>
              <th scope="col" className="number">Nodes</th>
              <th scope="col" className="number">Slots</th>
              <th scope="col" className="number">Held</th>
              <th scope="col" className="number">Free</th>
              <th scope="col" className="number">Out of use</th>
              <th scope="col">Jobs</th>
            </>
          }
        >
          {shown.map((child) => (
            <DomainRow key={child.id} domain={child} occupancy={occupancy} onEnter={onEnter} />
          ))}
        </Table>
      )}
      <Pager start={start} page={PAGE} total={children.length} noun="row" onStart={setStart} />
    </Panel>
  );
}

function DomainRow({ domain, occupancy, onEnter }: ContentsProps) {
  const counts = countsOf(domain, occupancy);
  return (
    <tr>
      <td className="nowrap">
        <UnstyledButton className={styles.link} fz="inherit" onClick={() => onEnter(domain)}>
          {titleOf(domain)}
        </UnstyledButton>
      </td>
      <td className="nowrap">{stateOf(domain, occupancy)}</td>
      <td className="number">{count(domain.endNode - domain.firstNode)}</td>
      <td className="number">{count(counts.slots)}</td>
      <td className="number">{count(counts.held)}</td>
      <td className="number">{count(counts.free)}</td>
      <td className="number">{count(counts.out)}</td>
      <td>
        <Jobs counts={counts} occupancy={occupancy} />
      </td>
    </tr>
  );
}

/** `3 of 16 gone`, or `alive`. */
function stateOf({ firstNode, endNode }: Domain, { views }: Occupancy): string {
  const uses = views.slice(firstNode, endNode).map((view) => (view === undefined ? "gone" : conditionOf(view)));
  if (uses.length === 1) return uses[0] ?? "";
  const told = (["gone", "takes no work"] as const).flatMap((use) => {
    const some = uses.filter((each) => each === use).length;
    return some === 0 ? [] : [`${some} ${use === "gone" ? "gone" : "without new work"}`];
  });
  return told.length === 0 ? "alive" : told.join(", ");
}

function Jobs({ counts, occupancy }: { counts: Counts; occupancy: Occupancy }) {
  return (
    <div className={styles.jobs}>
      {counts.jobs.slice(0, NAMED_JOBS).map(([number, slots]) => (
        <span key={number}>
          <JobLink number={number} occupancy={occupancy} /> <span className="dim">({count(slots)})</span>
        </span>
      ))}
      {counts.jobs.length > NAMED_JOBS && <span className="dim">and {plural(counts.jobs.length - NAMED_JOBS, "more job")}</span>}
    </div>
  );
}

function JobLink({ number, occupancy }: { number: number; occupancy: Occupancy }) {
  const holder = occupancy.holders[number];
  if (holder === undefined) return null;
  return (
    <Link to="/jobs/$jobId" params={{ jobId: holder.jobId }}>
      {holder.name}
    </Link>
  );
}

function SlotRow({ slot, occupancy }: { slot: Domain; occupancy: Occupancy }) {
  const view = occupancy.views[slot.firstNode];
  const rank = occupancy.rank[slot.first] ?? -1;
  const number = occupancy.holder[slot.first] ?? -1;
  const use = view === undefined ? "gone" : conditionOf(view);
  const state = number >= 0 ? "held" : use === "alive" ? "free" : "out of use";
  return (
    <tr>
      <td className="nowrap">{titleOf(slot)}</td>
      <td className="nowrap">{use === "alive" || state === "out of use" ? state : `${state}, node ${use}`}</td>
      <td>{view?.islands[indexOf(slot)] ?? view?.island ?? "not known"}</td>
      <td className="number">{rank < 0 ? "–" : rank}</td>
      <td>{number < 0 ? "–" : <JobLink number={number} occupancy={occupancy} />}</td>
    </tr>
  );
}
