import { useMutation } from "@tanstack/react-query";
import { useNavigate } from "@tanstack/react-router";
import { useRef } from "react";
import { sentence } from "../../api/problem";
import { type PlanAnswer, submitJob } from "../../api/queries";
import { count } from "../../format/numbers";
import { toYaml } from "../../format/yaml";
import { Notice } from "../../layout/Notice";
import { Panel } from "../../layout/Panel";
import { newKey } from "../submit/key";
import { entriesOf, lostBy, MEMORY, scaleOf, SECONDS } from "./comparison";
import { PlacedNow } from "./PlacedNow";
import { PlanCard } from "./PlanCard";
import styles from "./plan.module.css";
import { BarLegend } from "./StackedBar";

/** The job's own plan and the best that a search has found, on one scale. */
export function PlanComparison({ answer }: { answer: PlanAnswer }) {
  const navigate = useNavigate();
  const entries = entriesOf(answer);
  const scale = scaleOf(entries);
  // One key for one file: sending it again after a lost answer makes no second job.
  const keys = useRef(new Map<string, string>());
  const submit = useMutation({
    mutationFn: (jobFile: string) => {
      const key = keys.current.get(jobFile) ?? newKey();
      keys.current.set(jobFile, key);
      return submitJob(jobFile, key);
    },
    onSuccess: (job) => navigate({ to: "/jobs/$jobId", params: { jobId: job.id } }),
  });
  return (
    <div className={styles.results}>
      <Panel title="Plans">
        {submit.error !== null && (
          <p role="alert" className={styles.refused}>
            The job was not taken: {sentence(submit.error)}
          </p>
        )}
        {entries.length === 0 ? (
          <Notice title="Nothing to compare">{answer.notes.join(". ")}</Notice>
        ) : (
          <>
            <div className={styles.legends}>
              <BarLegend label="Step" order={SECONDS} />
              <BarLegend label="Memory" order={MEMORY} />
            </div>
            <div className={styles.plans}>
              {entries.map((entry) => {
                const jobFile = toYaml(entry.spec);
                return (
                  <PlanCard
                    key={entry.place ?? "own"}
                    entry={entry}
                    own={answer.estimate}
                    scale={scale}
                    pending={submit.isPending && submit.variables === jobFile}
                    disabled={submit.isPending}
                    onSubmit={() => submit.mutate(jobFile)}
                    onEdit={() => void navigate({ to: "/submit", state: { draft: jobFile } })}
                  />
                );
              })}
            </div>
            {answer.search?.best.length === 0 && <p>No plan fits: those that were tried are refused or too large for the memory.</p>}
          </>
        )}
      </Panel>
      {answer.search !== null && <Others search={answer.search} />}
      <PlacedNow answer={answer} />
      {entries.length > 0 && answer.notes.length > 0 && <Assumptions notes={answer.notes} />}
    </div>
  );
}

function Others({ search: { considered, best, lost } }: { search: NonNullable<PlanAnswer["search"]> }) {
  return (
    <Panel title="Why the others lost">
      <p>
        {count(considered)} plans were considered, {count(best.length)} are shown. Of the others
      </p>
      <ul className={styles.lines}>
        {lostBy(lost).map(([plans, why]) => (
          <li key={why}>
            <strong>{count(plans)}</strong> {why}
          </li>
        ))}
      </ul>
    </Panel>
  );
}

function Assumptions({ notes }: { notes: string[] }) {
  return (
    <Panel title="Taken for granted">
      <ul className={styles.lines}>
        {notes.map((note) => (
          <li key={note}>{note}</li>
        ))}
      </ul>
    </Panel>
  );
}
