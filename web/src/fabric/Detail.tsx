import { Link } from "@tanstack/react-router";
import { useMemo } from "react";
import { plural } from "../format/numbers";
import styles from "./fabric.module.css";
import { countsOf, type Occupancy, conditionOf } from "./occupancy";
import { type Domain, titleOf, type Tree } from "./tree";
import { countsInWords, placeInWords, problemsOf } from "./words";

const SHOWN_PROBLEMS = 3;

interface DetailProps {
  domain: Domain | null;
  tree: Tree;
  occupancy: Occupancy;
  problems: readonly string[];
}

/** What is under the pointer or the cursor, in words. */
export function Detail({ domain, tree, occupancy, problems }: DetailProps) {
  const wrong = useMemo(() => (domain === null ? [] : problemsOf(domain, tree, problems)), [domain, tree, problems]);
  return (
    <div className={styles.detail} aria-live="polite">
      {domain === null ? (
        <span className="dim">Point at a part of the drawing, or tap it, to see what is there.</span>
      ) : (
        <>
          <div>{domain.tier === "slot" ? <Slot slot={domain} occupancy={occupancy} /> : <Inside domain={domain} occupancy={occupancy} />}</div>
          <div className="dim">{placeInWords(domain)}</div>
          {wrong.slice(0, SHOWN_PROBLEMS).map((problem) => (
            <div key={problem} className={styles.warning}>
              {problem}
            </div>
          ))}
          {wrong.length > SHOWN_PROBLEMS && (
            <div className={styles.warning}>and {plural(wrong.length - SHOWN_PROBLEMS, "problem")} more</div>
          )}
        </>
      )}
    </div>
  );
}

function Inside({ domain, occupancy }: { domain: Domain; occupancy: Occupancy }) {
  const counts = countsOf(domain, occupancy);
  const view = domain.tier === "node" ? occupancy.views[domain.firstNode] : undefined;
  const facts = [view?.accelerator, view?.island == null ? null : `island ${view.island}`].filter(Boolean);
  return (
    <>
      <strong>{titleOf(domain)}</strong>
      {view !== undefined && conditionOf(view) !== "alive" && `, ${conditionOf(view)}`}
      {facts.length > 0 && ` (${facts.join(", ")})`}: {countsInWords(domain, counts)}
    </>
  );
}

function Slot({ slot, occupancy }: { slot: Domain; occupancy: Occupancy }) {
  const holder = occupancy.holders[occupancy.holder[slot.first] ?? -1];
  const view = occupancy.views[slot.firstNode];
  const use = view === undefined ? "alive" : conditionOf(view);
  const rank = occupancy.rank[slot.first] ?? -1;
  const state = { alive: "", "takes no work": ", the node takes no new work", gone: ", the node is gone" }[use];
  return (
    <>
      {holder === undefined ? (
        <strong>{use === "alive" ? "Free" : "Out of use"}</strong>
      ) : (
        <>
          <strong>Rank {rank < 0 ? "–" : rank} of</strong>{" "}
          <Link to="/jobs/$jobId" params={{ jobId: holder.jobId }}>
            {holder.name}
          </Link>
        </>
      )}
      {state}
    </>
  );
}
