import { Button, NativeSelect, TextInput } from "@mantine/core";
import { useDebouncedCallback } from "@mantine/hooks";
import { useQuery } from "@tanstack/react-query";
import { getRouteApi, Link } from "@tanstack/react-router";
import { useEffect, useRef, useState } from "react";
import { jobsQuery, PAGE_SIZE } from "../../api/queries";
import { plural } from "../../format/numbers";
import layout from "../../layout/layout.module.css";
import { Failure, Loading, Notice } from "../../layout/Notice";
import { useTitle } from "../../layout/title";
import type { JobsSearch } from "../../router";
import { STATES } from "../../state/states";
import { JobTable } from "./JobTable";
import styles from "./jobs.module.css";

const route = getRouteApi("/jobs");

/** All jobs, newest first, one page at a time. Filters and place are in the address. */
export function JobsPage() {
  const search = route.useSearch();
  const navigate = route.useNavigate();
  const query = useQuery(jobsQuery(search));
  const trail = useTrail(search);
  useTitle(search.state === undefined ? "Jobs" : `Jobs, ${search.state}`);

  const filter = (change: JobsSearch) =>
    void navigate({ search: { ...search, cursor: undefined, ...change }, replace: true });
  const filtered = search.state !== undefined || search.name !== undefined;
  const items = query.data?.items ?? [];
  const next = query.data?.next_cursor ?? null;

  return (
    <>
      <div className={layout.pageHead}>
        <h1>Jobs</h1>
        <Filters search={search} onChange={filter} />
      </div>
      <section className={layout.panel} aria-label="Jobs" aria-busy={query.isPlaceholderData}>
        {query.isPending ? (
          query.failureReason === null && (
            <div className={layout.panelBody}>
              <Loading label="Loading jobs" rows={8} height={28} />
            </div>
          )
        ) : items.length > 0 ? (
          <JobTable jobs={items} />
        ) : query.isError ? null : (
          <Empty filtered={filtered} onClear={() => filter({ state: undefined, name: undefined })} />
        )}
        {query.data === undefined && query.failureReason !== null && (
          <Failure title="Jobs could not be loaded" error={query.failureReason} onRetry={() => void query.refetch()} />
        )}
      </section>
      {items.length > 0 && (
        <nav className={styles.pager} aria-label="Pages of jobs">
          <span className="dim">
            {plural(items.length, "job")} on page {trail.page}
            {query.isPlaceholderData && ", loading the next"}
          </span>
          <Button
            size="xs"
            variant="default"
            disabled={search.cursor === undefined}
            onClick={() => void navigate({ search: { ...search, cursor: undefined } })}
          >
            Newest
          </Button>
          <Button
            size="xs"
            variant="default"
            disabled={trail.previous === null}
            onClick={() => void navigate({ search: { ...search, cursor: trail.previous || undefined } })}
          >
            Previous {PAGE_SIZE}
          </Button>
          <Button
            size="xs"
            variant="default"
            disabled={next === null || query.isPlaceholderData}
            onClick={() => {
              if (next === null) return;
              trail.step(next);
              void navigate({ search: { ...search, cursor: next } });
            }}
          >
            Next {PAGE_SIZE}
          </Button>
        </nav>
      )}
    </>
  );
}

/** Cursors of the pages walked through: a cursor leads forward only, so the way back is remembered. */
function useTrail({ state, name, cursor }: JobsSearch) {
  const filter = `${state ?? ""} ${name ?? ""}`;
  const [trail, setTrail] = useState<{ filter: string; cursors: (string | undefined)[] }>({ filter, cursors: FIRST });
  const cursors = trail.filter === filter ? trail.cursors : FIRST;
  const at = cursors.indexOf(cursor);
  return {
    page: at < 0 ? "from a link" : String(at + 1),
    /** Cursor of the page before; "" is the first; null when it is not known. */
    previous: at <= 0 ? null : (cursors[at - 1] ?? ""),
    step: (next: string) => setTrail({ filter, cursors: [...cursors.slice(0, Math.max(at, 0) + 1), next] }),
  };
}

const FIRST: (string | undefined)[] = [undefined];

function Filters({ search, onChange }: { search: JobsSearch; onChange: (change: JobsSearch) => void }) {
  const [name, setName] = useState(search.name ?? "");
  const sent = useRef(search.name);
  useEffect(() => {
    // The address changed by other means than typing: back, forward, a cleared filter.
    if (search.name !== sent.current) setName(search.name ?? "");
    sent.current = search.name;
  }, [search.name]);
  const send = useDebouncedCallback((value: string) => {
    sent.current = value || undefined;
    onChange({ name: sent.current });
  }, 250);
  return (
    <search className={styles.filters}>
      <NativeSelect
        aria-label="State"
        size="xs"
        value={search.state ?? ""}
        onChange={(event) => onChange({ state: STATES.find((state) => state === event.currentTarget.value) })}
        data={[{ value: "", label: "All states" }, ...STATES]}
      />
      <TextInput
        aria-label="Name contains"
        placeholder="Name contains"
        type="search"
        size="xs"
        value={name}
        maxLength={63}
        onChange={(event) => {
          // Names have no other characters; the API refuses a search for them.
          const value = event.currentTarget.value.replace(/[^A-Za-z0-9-]/g, "");
          setName(value);
          send(value);
        }}
      />
    </search>
  );
}

function Empty({ filtered, onClear }: { filtered: boolean; onClear: () => void }) {
  if (filtered) {
    return (
      <Notice
        title="No job matches"
        actions={
          <Button size="xs" variant="default" onClick={onClear}>
            Clear the filters
          </Button>
        }
      >
        No job has this state and a name with these letters.
      </Notice>
    );
  }
  return (
    <Notice title="No jobs yet" actions={<Link to="/submit">Submit a job</Link>}>
      Submit one here, or with <code>atoll submit FILE</code>.
    </Notice>
  );
}
