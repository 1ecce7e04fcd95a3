import { NativeSelect, SegmentedControl } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { isTerminal, type JobDetail, timelineQuery, timelinesQuery, type TimelineView } from "../../api/queries";
import { percent } from "../../format/numbers";
import { Failure, Loading, Notice } from "../../layout/Notice";
import { Facts } from "../../layout/Panel";
import { RankSumsTable } from "../../timeline/RankSumsTable";
import { milliseconds } from "../../timeline/spans";
import { TimelineChart } from "../../timeline/TimelineChart";
import styles from "../../timeline/timeline.module.css";

/** The schedule of one step as it ran, with the bubble measured and in theory. */
export function TimelinePanel({ job }: { job: JobDetail }) {
  const over = isTerminal(job.state);
  const kept = useQuery(timelinesQuery(job.id, !over));
  const [wanted, setWanted] = useState<string | null>(null);
  const [form, setForm] = useState("drawing");
  const items = kept.data?.items ?? [];
  const chosen = items.find((item) => keyOf(item) === wanted) ?? items[0];
  const query = useQuery({ ...timelineQuery(job.id, chosen), enabled: chosen !== undefined });

  if (kept.isPending) return <Loading label="Loading the timelines" rows={5} height={28} />;
  if (kept.data === undefined) {
    return <Failure title="The timelines could not be loaded" error={kept.error} onRetry={() => void kept.refetch()} />;
  }
  if (chosen === undefined) {
    return (
      <Notice title={over ? "No timeline was recorded" : "No timeline yet"}>
        {over
          ? "The job ended before its second step, or its program records none."
          : "The schedule of the second step is the first that is kept: the one before it warms up."}
      </Notice>
    );
  }
  return (
    <>
      <div className={styles.controls}>
        <NativeSelect
          size="xs"
          label="Step"
          value={keyOf(chosen)}
          onChange={(event) => setWanted(event.currentTarget.value)}
          data={items.map((item) => ({ value: keyOf(item), label: labelOf(item, items) }))}
        />
        <SegmentedControl size="xs" aria-label="Show the timeline as" value={form} onChange={setForm} data={["drawing", "table"]} />
      </div>
      {query.data !== undefined ? (
        <Shown shown={query.data} form={form} />
      ) : query.isError ? (
        <Failure title="The timeline could not be loaded" error={query.error} onRetry={() => void query.refetch()} />
      ) : (
        <Loading label="Loading the timeline" rows={5} height={28} />
      )}
    </>
  );
}

function Shown({ shown, form }: { shown: TimelineView; form: string }) {
  const leftOut = shown.ranks.reduce((total, rank) => total + rank.spans_left_out, 0);
  return (
    <>
      <Facts
        items={[
          ["Bubble, measured", percent(shown.bubble, 1)],
          ["Bubble, in theory", percent(shown.theory, 1)],
          ["First to last work", milliseconds(shown.window_us)],
          ["Schedule", shown.pp > 1 ? shown.schedule : "no pipeline"],
          ["Micro-batches", shown.microbatches],
          ["Stages a rank", shown.virtual_stages],
        ]}
      />
      {form === "table" ? <RankSumsTable shown={shown} /> : <TimelineChart shown={shown} />}
      <p className="dim">
        The bubble is idle time over the time that ranks computed. {clockWords(shown.clock_error_us)}
        {leftOut > 0 && ` ${leftOut.toLocaleString("en-US")} pieces of work are left out of the drawing, not of the sums.`}
      </p>
    </>
  );
}

function clockWords(errorUs: number | null): string {
  if (errorUs === null) return "The hosts' clocks could not be compared: ranks are drawn as if they began together.";
  if (errorUs === 0) return "All ranks run on one host and read one clock.";
  return `Times of different hosts agree within ${milliseconds(errorUs)}.`;
}

interface Key {
  attempt: number;
  step: number;
}

function keyOf({ attempt, step }: Key): string {
  return `${attempt}/${step}`;
}

function labelOf({ attempt, step }: Key, items: Key[]): string {
  return items.some((item) => item.attempt !== attempt) ? `${step}, attempt ${attempt}` : String(step);
}
