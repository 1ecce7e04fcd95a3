import { Tabs } from "@mantine/core";
import { getRouteApi } from "@tanstack/react-router";
import type { EventView, JobDetail } from "../../api/queries";
import type { Series } from "../../charts/series";
import { JOB_TABS, type JobTab } from "../../router";
import { AttemptTable } from "./AttemptTable";
import { CheckpointTable } from "./CheckpointTable";
import { CostPanel } from "./cost/CostPanel";
import { EventTimeline } from "./EventTimeline";
import { GoodputPanel } from "./GoodputPanel";
import { HealthPanel } from "./health/HealthPanel";
import styles from "./job.module.css";
import { LogPanel } from "./LogPanel";
import { SpecView } from "./SpecView";
import { TimelinePanel } from "./TimelinePanel";

const route = getRouteApi("/jobs/$jobId");

const NAMES: Record<JobTab, string> = {
  events: "Events",
  timeline: "Timeline",
  cost: "Cost",
  health: "Health",
  goodput: "Goodput",
  logs: "Logs",
  checkpoints: "Checkpoints",
  attempts: "Attempts",
  spec: "Job file",
};

/** What has happened and what was written; the open tab is in the address. */
export function JobTabs({ job, series, events }: { job: JobDetail; series: Series; events: EventView[] }) {
  const { tab = "events" } = route.useSearch();
  const navigate = route.useNavigate();
  const open = (value: string | null) =>
    void navigate({
      search: (now) => ({ ...now, tab: JOB_TABS.find((known) => known === value) }),
      replace: true,
      resetScroll: false,
    });
  return (
    <Tabs value={tab} onChange={open} keepMounted={false} className={styles.tabs}>
      <Tabs.List className={styles.tabList}>
        {JOB_TABS.map((name) => (
          <Tabs.Tab key={name} value={name}>
            {NAMES[name]}
          </Tabs.Tab>
        ))}
      </Tabs.List>
      <Tabs.Panel value="events">
        <EventTimeline events={events} />
      </Tabs.Panel>
      <Tabs.Panel value="timeline">
        <TimelinePanel job={job} />
      </Tabs.Panel>
      <Tabs.Panel value="cost">
        <CostPanel job={job} series={series} events={events} />
      </Tabs.Panel>
      <Tabs.Panel value="health">
        <HealthPanel job={job} />
      </Tabs.Panel>
      <Tabs.Panel value="goodput">
        <GoodputPanel job={job} />
      </Tabs.Panel>
      <Tabs.Panel value="logs">
        <LogPanel job={job} />
      </Tabs.Panel>
      <Tabs.Panel value="checkpoints">
        <CheckpointTable job={job} />
      </Tabs.Panel>
      <Tabs.Panel value="attempts">
        <AttemptTable job={job} />
      </Tabs.Panel>
      <Tabs.Panel value="spec">
        <SpecView job={job} />
      </Tabs.Panel>
    </Tabs>
  );
}
