import { NativeSelect, SegmentedControl } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { useMemo, useState } from "react";
import { healthQuery, heatMapQuery, isTerminal, type JobDetail } from "../../../api/queries";
import { Failure, Loading, Notice } from "../../../layout/Notice";
import { FindingList } from "./FindingList";
import { HeatMap } from "./HeatMap";
import type { Plane } from "./heat";
import styles from "./health.module.css";

const PLANES: { value: Plane; label: string }[] = [
  { value: "compute", label: "computing" },
  { value: "slowest", label: "slowest step" },
  { value: "wait", label: "waiting" },
];

/** Which ranks are slow, and how all of them compare step by step. */
export function HealthPanel({ job }: { job: JobDetail }) {
  const over = isTerminal(job.state);
  const health = useQuery(healthQuery(job.id, !over));
  const [wanted, setWanted] = useState<number | undefined>();
  const [plane, setPlane] = useState<Plane>("compute");
  const map = useQuery(heatMapQuery(job.id, wanted, !over));
  const nodes = useMemo(() => new Map(job.placement?.ranks.map((rank) => [rank.rank, rank.node])), [job.placement]);
  const stages = useMemo(
    () => new Map(job.placement?.ranks.map((rank) => [rank.rank, rank.coordinates["pp"] ?? 0])),
    [job.placement],
  );

  if (health.isPending || map.isPending) return <Loading label="Loading the health of the ranks" rows={5} height={28} />;
  if (health.data === undefined || map.data === undefined) {
    const error = health.error ?? map.error;
    const again = () => void Promise.all([health.refetch(), map.refetch()]);
    return <Failure title="The health of the ranks could not be loaded" error={error} onRetry={again} />;
  }
  const { findings, heatmap_attempts: attempts, policy } = health.data;
  if (attempts.length === 0 && findings.length === 0) {
    return (
      <Notice title={policy === "off" ? "Nothing is measured" : over ? "Nothing was measured" : "Nothing is known yet"}>
        {policy === "off"
          ? "The job file says health.stragglers: off."
          : over
            ? "The job ended before there was enough to compare, or its program measures nothing."
            : "Ranks are compared once each has finished eleven steps: the first three warm up."}
      </Notice>
    );
  }
  const shown = map.data;
  return (
    <>
      <FindingList findings={findings} attempts={new Set(findings.map((one) => one.attempt)).size} />
      {shown.attempt !== null && (
        <>
          <div className={styles.controls}>
            <SegmentedControl
              size="xs"
              aria-label="Show in the heat map"
              value={plane}
              onChange={(value) => setPlane(PLANES.find((one) => one.value === value)?.value ?? "compute")}
              data={PLANES}
            />
            {attempts.length > 1 && (
              <NativeSelect
                size="xs"
                label="Attempt"
                value={String(shown.attempt)}
                onChange={(event) => setWanted(Number(event.currentTarget.value))}
                data={attempts.map(String)}
              />
            )}
          </div>
          <HeatMap
            key={shown.attempt}
            shown={shown}
            plane={plane}
            found={findings.filter((one) => one.category === "straggler" && one.attempt === shown.attempt)}
            nodes={nodes}
            stages={stages}
          />
        </>
      )}
    </>
  );
}
