import { useMemo } from "react";
import type { EventView, JobDetail } from "../../../api/queries";
import type { Series } from "../../../charts/series";
import { type Line, StepChart } from "../../../charts/StepChart";
import { bytes, flopsPerSecond, metric, percent } from "../../../format/numbers";
import { duration } from "../../../format/time";
import { Notice } from "../../../layout/Notice";
import { Facts } from "../../../layout/Panel";
import { BarList } from "./BarList";
import { bytesByAxis, COST_STEPS, newestLoads, secondsOfStep, waited } from "./cost";
import styles from "./cost.module.css";
import { ExpertLoads } from "./ExpertLoads";

/** What a step costs: time by phase, bytes by axis, memory, FLOP/s, loads of experts. */
export function CostPanel({ job, series, events }: { job: JobDetail; series: Series; events: EventView[] }) {
  const seconds = useMemo(() => secondsOfStep(series.costs), [series]);
  const sent = useMemo(() => bytesByAxis(series.costs), [series]);
  const loads = useMemo(() => newestLoads(events), [events]);
  const newest = series.costs.findLast((cost) => cost !== null);
  if (newest == null) {
    return (
      <Notice title={series.steps.length === 0 ? "No step yet" : "Nothing was measured"}>
        {series.steps.length === 0
          ? "Figures appear with the first finished step."
          : "The program of this job does not say what its steps cost."}
      </Notice>
    );
  }
  const { mfu, model_flops_per_s: flops, peak_bytes: peak } = newest;
  return (
    <div className={styles.panel}>
      <Facts
        items={[
          ["Model FLOP/s", flopsPerSecond(flops)],
          ["Utilisation (MFU)", mfu === null ? "unknown device" : percent(mfu, 1)],
          ["Peak memory of a rank", bytes(peak)],
        ]}
      />
      <div className={styles.columns}>
        <section aria-labelledby="cost-time">
          <h3 id="cost-time">Time of a step, rank 0</h3>
          {seconds === null ? (
            <p className="dim">These steps have no times by phase.</p>
          ) : (
            <BarList label="Seconds of a step by phase" parts={seconds} format={duration} />
          )}
        </section>
        <section aria-labelledby="cost-bytes">
          <h3 id="cost-bytes">Bytes a rank sends in a step</h3>
          {sent === null || sent.length === 0 ? (
            <p className="dim">{job.world_size === 1 ? "One rank alone sends nothing." : "Nothing was sent."}</p>
          ) : (
            <BarList label="Bytes sent in a step by axis" parts={sent} format={bytes} />
          )}
        </section>
      </div>
      <p className="dim">
        Means over the last {COST_STEPS} steps. Bytes are counted by the ring algorithm, the mean over ranks. FLOPs: 6 a
        weight and token and the causal half of attention; what is recomputed does not count.
      </p>
      <WaitingChart series={series} />
      <section aria-labelledby="cost-experts">
        <h3 id="cost-experts">Load of experts</h3>
        <ExpertLoads loads={loads} hasExperts={hasExperts(job)} />
      </section>
    </div>
  );
}

function WaitingChart({ series }: { series: Series }) {
  const lines = useMemo<Line[]>(
    () => [
      { label: "step", color: "--curve-loss", values: series.stepSeconds, kind: "line", format: duration },
      { label: "waiting", color: "--curve-held-back", values: series.costs.map(waited), kind: "line", format: duration },
    ],
    [series],
  );
  if (series.costs.every((cost) => waited(cost) === null)) return null;
  return (
    <StepChart
      summary={`Time of a step and of waiting in it over steps, now ${duration(series.stepSeconds.at(-1) ?? null)} and ${duration(waited(series.costs.at(-1) ?? null))}`}
      unit="Step and waiting for other ranks, s, by step"
      steps={series.steps}
      lines={lines}
      marks={series.setbacks}
      formatTick={(value) => metric(value)}
      fromZero
    />
  );
}

function hasExperts(job: JobDetail): boolean {
  const model: unknown = job.spec["model"];
  return typeof model === "object" && model !== null && "moe" in model && model.moe !== null;
}
