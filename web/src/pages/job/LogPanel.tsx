import { ActionIcon, Button, NativeSelect, Switch, TextInput } from "@mantine/core";
import { getRouteApi } from "@tanstack/react-router";
import { useMemo, useState } from "react";
import { sentence } from "../../api/problem";
import { isTerminal, type JobDetail } from "../../api/queries";
import { bytes, count, plural } from "../../format/numbers";
import { Failure, Loading, Notice } from "../../layout/Notice";
import { downloadLog } from "./downloadLog";
import { linesOf, matches } from "./logBuffer";
import { LogLines } from "./LogLines";
import styles from "./log.module.css";
import { useLog } from "./useLog";

const route = getRouteApi("/jobs/$jobId");

/** Beyond this many ranks a number is typed instead of picked. */
const PICKED_RANKS = 256;

/** The log of one rank, as it is written. Rank and attempt are in the address. */
export function LogPanel({ job }: { job: JobDetail }) {
  const { rank: wanted = 0, attempt } = route.useSearch();
  const navigate = route.useNavigate();
  const rank = Math.min(wanted, job.world_size - 1);
  const over = isTerminal(job.state);
  const [follow, setFollow] = useState(true);
  const [failure, setFailure] = useState<unknown>(null);
  const log = useLog({ jobId: job.id, rank, attempt, live: !over });
  const lines = useMemo(() => linesOf(log.buffer?.text ?? ""), [log.buffer?.text]);
  const search = useSearch(lines);

  const choose = (change: { rank?: number | undefined; attempt?: number | undefined }) =>
    void navigate({ search: (now) => ({ ...now, ...change }), replace: true, resetScroll: false });

  return (
    <>
      <div className={styles.toolbar}>
        <RankPicker rank={rank} ranks={job.world_size} onChange={(value) => choose({ rank: value })} />
        <NativeSelect
          aria-label="Attempt"
          size="xs"
          value={attempt ?? ""}
          onChange={(event) => choose({ attempt: Number(event.currentTarget.value) || undefined })}
          data={[
            { value: "", label: "newest attempt" },
            ...job.attempts.map(({ number }) => ({ value: String(number), label: `attempt ${number}` })),
          ]}
        />
        {!over && (attempt === undefined || attempt === job.attempts.at(-1)?.number) && (
          <Switch label="Follow" checked={follow} onChange={(event) => setFollow(event.currentTarget.checked)} />
        )}
        <Button
          size="xs"
          variant="default"
          disabled={log.buffer === null}
          onClick={() => {
            setFailure(null);
            downloadLog(job, rank, log.buffer?.attempt).catch(setFailure);
          }}
        >
          Download
        </Button>
        <SearchField search={search} onSearch={() => setFollow(false)} />
      </div>
      {failure !== null && <p role="alert">The log could not be downloaded: {sentence(failure)}</p>}
      {log.buffer === null ? (
        <NoLog log={log} over={over} />
      ) : (
        <>
          <LogLines
            lines={lines}
            needle={search.needle}
            target={search.target}
            follow={follow && search.needle === ""}
            onFollow={setFollow}
          />
          <div className={styles.foot}>
            {log.buffer.start > 0 && !log.buffer.dropped && (
              <Button size="compact-xs" variant="default" onClick={() => void log.readEarlier()}>
                Read earlier lines
              </Button>
            )}
            <span className="dim">
              Rank {rank}, attempt {log.buffer.attempt}: {plural(lines.length, "line")} shown,{" "}
              {bytes(log.buffer.end - log.buffer.start)} of {bytes(log.buffer.size)}
              {log.buffer.dropped && "; older lines are in the download"}
              {!log.buffer.live && ", as kept when the attempt ended"}
            </span>
            {log.error !== null && <span role="status">Nothing newer can be read: {sentence(log.error)}</span>}
          </div>
        </>
      )}
    </>
  );
}

function NoLog({ log, over }: { log: ReturnType<typeof useLog>; over: boolean }) {
  if (log.loading) return <Loading label="Loading the log" rows={8} />;
  if (log.missing) {
    return (
      <Notice title="No log">
        {over ? sentence(log.error) : "Ranks write from their start on; lines appear here as they come."}
      </Notice>
    );
  }
  return <Failure title="The log cannot be read now" error={log.error} />;
}

function RankPicker({ rank, ranks, onChange }: { rank: number; ranks: number; onChange: (rank: number) => void }) {
  if (ranks <= PICKED_RANKS) {
    return (
      <NativeSelect
        aria-label="Rank"
        size="xs"
        className={styles.rank}
        value={rank}
        onChange={(event) => onChange(Number(event.currentTarget.value))}
        data={Array.from({ length: ranks }, (_, i) => ({ value: String(i), label: `rank ${i}` }))}
      />
    );
  }
  return (
    <TextInput
      aria-label={`Rank, 0 to ${ranks - 1}`}
      size="xs"
      type="number"
      className={styles.rank}
      min={0}
      max={ranks - 1}
      value={rank}
      onChange={(event) => {
        const value = event.currentTarget.valueAsNumber;
        if (Number.isInteger(value) && value >= 0 && value < ranks) onChange(value);
      }}
    />
  );
}

function useSearch(lines: string[]) {
  const [needle, setNeedle] = useState("");
  const [place, setPlace] = useState(0);
  const found = useMemo(() => matches(lines, needle), [lines, needle]);
  const at = found.length === 0 ? 0 : place % found.length;
  return {
    needle,
    found,
    at,
    target: found[at] ?? null,
    look: (value: string) => {
      setNeedle(value);
      setPlace(0);
    },
    move: (by: number) => setPlace((at + by + found.length) % Math.max(1, found.length)),
  };
}

function SearchField({ search, onSearch }: { search: ReturnType<typeof useSearch>; onSearch: () => void }) {
  const { needle, found, at, look, move } = search;
  return (
    <search className={styles.search}>
      {needle !== "" && (
        <span className="dim nowrap" role="status">
          {found.length === 0 ? "no match" : `${count(at + 1)} of ${count(found.length)}`}
        </span>
      )}
      <TextInput
        aria-label="Search the lines shown"
        placeholder="Search"
        type="search"
        size="xs"
        value={needle}
        onChange={(event) => {
          look(event.currentTarget.value);
          onSearch();
        }}
        onKeyDown={(event) => {
          if (event.key === "Enter") move(event.shiftKey ? -1 : 1);
        }}
      />
      <ActionIcon variant="default" aria-label="Previous match" disabled={found.length === 0} onClick={() => move(-1)}>
        ↑
      </ActionIcon>
      <ActionIcon variant="default" aria-label="Next match" disabled={found.length === 0} onClick={() => move(1)}>
        ↓
      </ActionIcon>
    </search>
  );
}
