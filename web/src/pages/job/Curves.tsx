import { useMemo } from "react";
import { type EventView, isTerminal, type JobDetail } from "../../api/queries";
import type { StreamPhase } from "../../api/useStream";
import type { Series } from "../../charts/series";
import { type Line, StepChart } from "../../charts/StepChart";
import { loss, metric, plural, tokensPerSecond } from "../../format/numbers";
import { Loading, Notice } from "../../layout/Notice";
import { Panel } from "../../layout/Panel";
import styles from "./job.module.css";

interface CurvesProps {
  job: JobDetail;
  series: Series;
  events: EventView[];
  phase: StreamPhase;
}

interface Evaluated {
  step: number;
  loss: number;
  unigram: number;
}

/** Loss and throughput over steps, live. */
export function Curves({ job, series, events, phase }: CurvesProps) {
  const evaluations = useMemo(() => evaluationsOf(events), [events]);
  const lossLines = useMemo(() => linesOfLoss(series, evaluations), [series, evaluations]);
  const paceLines = useMemo<Line[]>(
    () => [
      {
        label: "tokens/s",
        color: "--curve-throughput",
        values: series.tokensPerSecond,
        kind: "line",
        format: (value) => tokensPerSecond(value),
      },
    ],
    [series],
  );
  return (
    <Panel title="Training" actions={<Connection phase={phase} over={isTerminal(job.state)} />}>
      {series.steps.length === 0 ? (
        <NoCurves job={job} phase={phase} />
      ) : (
        <div className={styles.charts}>
          <StepChart
            summary={`Loss over steps, ${loss(series.loss[0])} at step ${series.steps[0]} to ${loss(series.loss.at(-1))} at step ${series.steps.at(-1)}, nats a token`}
            unit="Loss, nats/token, by step"
            steps={series.steps}
            lines={lossLines}
            marks={series.setbacks}
            formatTick={(value) => loss(value).replace(/(\.\d*?)0+$/, "$1").replace(/\.$/, "")}
          />
          <StepChart
            summary={`Throughput over steps, now ${tokensPerSecond(series.tokensPerSecond.at(-1))}`}
            unit="Throughput, tokens/s, by step"
            steps={series.steps}
            lines={paceLines}
            marks={series.setbacks}
            formatTick={metric}
            fromZero
          />
          {series.setbacks.length > 0 && (
            <p className="dim">
              {plural(series.setbacks.length, "dotted line")}: a restart took the job back to a checkpoint there; the
              steps after it were trained again.
            </p>
          )}
        </div>
      )}
    </Panel>
  );
}

function NoCurves({ job, phase }: { job: JobDetail; phase: StreamPhase }) {
  const mayCome = phase === "connecting" || !isTerminal(job.state);
  if (mayCome && job.step > 0) return <Loading label="Loading the curves" rows={6} height={40} />;
  if (job.step > 0) return <Notice title="No curves">The points of this job&rsquo;s steps are not in the store.</Notice>;
  if (isTerminal(job.state)) return <Notice title="No step was finished">The job ended before its first step.</Notice>;
  return <Notice title="No step yet">Curves appear with the first finished step.</Notice>;
}

function Connection({ phase, over }: { phase: StreamPhase; over: boolean }) {
  if (over || phase === "ended") return null;
  const words = { connecting: "connecting", live: "live", interrupted: "interrupted, connecting again" }[phase];
  return (
    <span className={styles.connection} data-phase={phase} role="status">
      {words}
    </span>
  );
}

function evaluationsOf(events: EventView[]): Evaluated[] {
  return events.flatMap(({ kind, data }) => {
    const { step, loss: value, unigram_loss: unigram } = data;
    if (kind !== "evaluated" || typeof step !== "number" || typeof value !== "number") return [];
    return [{ step, loss: value, unigram: typeof unigram === "number" ? unigram : Number.NaN }];
  });
}

function linesOfLoss(series: Series, evaluations: Evaluated[]): Line[] {
  const lines: Line[] = [
    { label: "training", color: "--curve-loss", values: series.loss, kind: "line", format: (value) => loss(value) },
  ];
  if (evaluations.length === 0) return lines;
  const heldBack: (number | null)[] = series.steps.map(() => null);
  for (const { step, loss: value } of evaluations) {
    const at = nearest(series.steps, step);
    if (at >= 0) heldBack[at] = value;
  }
  lines.push({
    label: "held back",
    color: "--curve-held-back",
    values: heldBack,
    kind: "points",
    format: (value) => loss(value),
  });
  const unigram = evaluations.at(-1)?.unigram ?? Number.NaN;
  if (Number.isFinite(unigram)) {
    lines.push({
      label: "unigram model",
      color: "--curve-unigram",
      values: series.steps.map(() => unigram),
      kind: "dashed",
      format: (value) => loss(value),
    });
  }
  return lines;
}

/** Index of the last drawn step that is not beyond `step`: long histories are thinned. */
function nearest(steps: number[], step: number): number {
  return steps.findLastIndex((drawn) => drawn <= step);
}
