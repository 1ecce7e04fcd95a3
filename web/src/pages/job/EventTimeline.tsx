import { Button } from "@mantine/core";
import { useState } from "react";
import type { EventView } from "../../api/queries";
import { clock, localTime } from "../../format/time";
import { Loading } from "../../layout/Notice";
import { firstLine } from "../../state/states";
import styles from "./job.module.css";

type Tone = "bad" | "repair" | "good" | "plain";

const TONES: Partial<Record<EventView["kind"], Tone>> = {
  "supervisor-lost": "bad",
  "certificate-refused": "bad",
  "rank-died": "bad",
  "node-lost": "bad",
  hung: "bad",
  straggler: "bad",
  "straggler-recovered": "good",
  "replacement-advised": "repair",
  "replacement-put-off": "repair",
  "checkpoint-failed": "bad",
  "checkpoint-skipped": "bad",
  "snapshot-failed": "bad",
  "snapshot-skipped": "bad",
  "cancel-requested": "repair",
  preempted: "repair",
  "time-limit-reached": "bad",
  "repair-started": "repair",
  moved: "repair",
  resumed: "repair",
  repaired: "good",
  certified: "good",
  "training-started": "good",
};

const SHOWN = 100;

/** Events of the job, newest first. */
export function EventTimeline({ events }: { events: EventView[] }) {
  const [all, setAll] = useState(false);
  // A job's first event is its submission: without any they are still on their way.
  if (events.length === 0) return <Loading label="Reading the events" rows={4} />;
  const newest = events.toReversed();
  const shown = all ? newest : newest.slice(0, SHOWN);
  return (
    <>
      <ol className={styles.timeline} reversed>
        {shown.map((event) => (
          <Event key={event.id} event={event} />
        ))}
      </ol>
      {shown.length < events.length && (
        <Button variant="default" size="xs" onClick={() => setAll(true)}>
          Show all {events.length} events
        </Button>
      )}
    </>
  );
}

function Event({ event }: { event: EventView }) {
  const head = firstLine(event.message);
  const rest = event.message.slice(head.length).trim();
  return (
    <li className={styles.event} data-tone={TONES[event.kind] ?? "plain"}>
      <time className="dim nowrap" dateTime={event.at} title={localTime(event.at)}>
        {clock(new Date(event.at))}
      </time>
      <span className={styles.kind}>{event.kind.replaceAll("-", " ")}</span>
      <div className={styles.message}>
        {head}
        {event.attempt !== null && <span className="dim"> · attempt {event.attempt}</span>}
        {rest !== "" && (
          <details>
            <summary>Details</summary>
            {/* oxlint-disable-next-line jsx-a11y/no-noninteractive-tabindex -- a scrolling region must take keys */}
            <pre tabIndex={0} className={styles.traceback}>{rest}</pre>
          </details>
        )}
      </div>
    </li>
  );
}
