import type { ReactNode } from "react";
import { isTerminal, type JobDetail } from "../../api/queries";
import { median, type Series } from "../../charts/series";
import { count, loss, plural, tokensPerSecond } from "../../format/numbers";
import { duration, localTime, remainingSeconds, secondsBetween } from "../../format/time";
import { useNow } from "../../layout/clock";
import { Facts } from "../../layout/Panel";
import { Progress } from "../../state/Progress";
import { StateChip } from "../../state/StateChip";
import { firstLine, reasonSentence } from "../../state/states";
import { CancelButton } from "./CancelButton";
import styles from "./job.module.css";

/** Steps whose median time and throughput stand for the pace now. */
const PACE_STEPS = 20;

/** The state of the job in two seconds: chip, reason, progress, the few figures that matter. */
export function JobHeader({ job, series }: { job: JobDetail; series: Series }) {
  const over = isTerminal(job.state);
  const now = useNow(!over);
  const newest = series.newest;
  const pace = median(series.stepSeconds.slice(-PACE_STEPS));
  const remaining = job.state === "running" ? remainingSeconds(job.step, job.total_steps, pace) : null;
  const elapsed = job.started_at === null ? null : secondsBetween(job.started_at, job.finished_at, now);

  const lossNow = newest === null ? job.loss : newest.loss;
  const facts: [string, ReactNode][] = [
    ["Loss", lossNow === null ? "–" : `${loss(lossNow)} nats/token`],
    ["Throughput", tokensPerSecond(median(series.tokensPerSecond.slice(-PACE_STEPS)) ?? job.tokens_per_s)],
    ["Step time", duration(pace)],
    ["Plan", `${job.plan}, ${plural(job.world_size, "rank")}`],
    ["Restarts", String(job.restarts)],
    [over ? "Ran for" : "Running for", duration(elapsed)],
    ["Submitted", <time key="at" dateTime={job.created_at}>{localTime(job.created_at)}</time>],
  ];
  if (job.finished_at !== null) {
    facts.push(["Ended", <time key="end" dateTime={job.finished_at}>{localTime(job.finished_at)}</time>]);
  }

  return (
    <header className={styles.header}>
      <div className={styles.titleLine}>
        <StateChip state={job.state} large />
        <h1>{job.name}</h1>
        <span className={`mono dim ${styles.id}`}>{job.id}</span>
        {!over && <CancelButton job={job} />}
      </div>
      <Reason job={job} />
      <Evaluation job={job} />
      <Progress
        step={job.step}
        totalSteps={job.total_steps}
        state={job.state}
        aside={remaining === null ? undefined : `about ${duration(remaining)} left`}
      />
      <Facts items={facts} />
    </header>
  );
}

/** The sentence; a traceback behind it is folded away. */
function Reason({ job }: { job: JobDetail }) {
  const whole = reasonSentence(job);
  const head = firstLine(whole);
  if (head === "") return null;
  const rest = whole.slice(head.length).trim();
  return (
    <div className={styles.reason} data-failed={job.state === "failed" || undefined}>
      <p>{head}</p>
      {rest !== "" && (
        <details open={job.state === "failed"}>
          <summary>Details</summary>
          {/* oxlint-disable-next-line jsx-a11y/no-noninteractive-tabindex -- a scrolling region must take keys */}
          <pre tabIndex={0} className={styles.traceback}>{rest}</pre>
        </details>
      )}
    </div>
  );
}

function Evaluation({ job }: { job: JobDetail }) {
  const { evaluation } = job;
  if (evaluation === null) return null;
  if (evaluation.loss === null) {
    return <p>The held-back loss at step {count(evaluation.step)} was not finite.</p>;
  }
  const gain = evaluation.unigram_loss - evaluation.loss;
  return (
    <p>
      <strong>Held-back loss {loss(evaluation.loss)} nats/token</strong> at step {count(evaluation.step)},{" "}
      {loss(Math.abs(gain))} {gain >= 0 ? "below" : "above"} a unigram model&rsquo;s {loss(evaluation.unigram_loss)}.
    </p>
  );
}
