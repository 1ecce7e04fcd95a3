import { Button } from "@mantine/core";
import { useMutation, useQuery } from "@tanstack/react-query";
import { getRouteApi, useLocation, useNavigate } from "@tanstack/react-router";
import { useEffect, useRef, useState } from "react";
import { ProblemError, sentence } from "../../api/problem";
import { checkPlan, jobQuery, submitJob } from "../../api/queries";
import { toYaml } from "../../format/yaml";
import layout from "../../layout/layout.module.css";
import { Loading, Notice } from "../../layout/Notice";
import { Panel } from "../../layout/Panel";
import { useTitle } from "../../layout/title";
import DEMO_JOB from "./demo.yaml?raw"; // The same text as examples/demo.yaml: tests/web holds them together.
import { goToLine, JobEditor } from "./JobEditor";
import { newKey } from "./key";
import { PlanPreview } from "./PlanPreview";
import styles from "./submit.module.css";
import { locate, Violations } from "./Violations";

const route = getRouteApi("/submit");

/** A job file is written, checked against the cluster as it is now, and sent. */
export function SubmitPage() {
  useTitle("Submit a job");
  const { from } = route.useSearch();
  const draft = useLocation({ select: ({ state }) => state.draft });
  const source = useQuery({ ...jobQuery(from ?? ""), enabled: from !== undefined, refetchInterval: false });
  if (from === undefined) return <SubmitForm key={draft} initial={draft ?? DEMO_JOB} />;
  if (source.data !== undefined) return <SubmitForm initial={toYaml(source.data.spec)} />;
  if (source.isError) return <SubmitForm initial={DEMO_JOB} />;
  return <Loading label="Loading the job file" rows={8} />;
}

function SubmitForm({ initial }: { initial: string }) {
  const navigate = useNavigate();
  const [text, setText] = useState(initial);
  const editor = useRef<HTMLTextAreaElement>(null);
  const results = useRef<HTMLDivElement>(null);
  // One key for one text: sending the same file again after a lost answer makes no second job.
  const key = useRef({ text, value: newKey() });
  const plan = useMutation({ mutationFn: checkPlan });
  const submit = useMutation({
    mutationFn: (jobFile: string) => {
      if (key.current.text !== jobFile) key.current = { text: jobFile, value: newKey() };
      return submitJob(jobFile, key.current.value);
    },
    onSuccess: (job) => navigate({ to: "/jobs/$jobId", params: { jobId: job.id } }),
  });

  const error: unknown = submit.error ?? plan.error;
  const violations = error instanceof ProblemError ? error.violations : [];
  const located = locate(text, violations);
  const settled = plan.data ?? error;
  useEffect(() => {
    // Where the answer lies below the editor, bring it into view.
    if (settled != null && results.current !== null && results.current.getBoundingClientRect().top > innerHeight) {
      results.current.scrollIntoView({ block: "start" });
    }
  }, [settled]);

  const edit = (value: string) => {
    setText(value);
    plan.reset();
    submit.reset();
  };

  return (
    <>
      <div className={layout.pageHead}>
        <h1>Submit a job</h1>
      </div>
      <div className={styles.columns}>
        <Panel
          title="Job file"
          actions={
            <>
              <Button
                size="xs"
                variant="subtle"
                disabled={text.trim() === ""}
                onClick={() => void navigate({ to: "/plan", state: { draft: text } })}
              >
                Compare plans
              </Button>
              <Button
                size="xs"
                variant="default"
                loading={plan.isPending}
                disabled={text.trim() === ""}
                onClick={() => {
                  submit.reset();
                  plan.mutate(text);
                }}
              >
                Check plan
              </Button>
              <Button
                size="xs"
                loading={submit.isPending}
                disabled={text.trim() === ""}
                onClick={() => {
                  plan.reset();
                  submit.mutate(text);
                }}
              >
                Submit
              </Button>
            </>
          }
          flush
        >
          <JobEditor ref={editor} value={text} onChange={edit} marked={located.flatMap(({ line }) => line ?? [])} />
        </Panel>
        <div ref={results} aria-live="polite" className={styles.results}>
          {error !== null ? (
            <Panel title={violations.length > 0 ? "This job cannot be taken" : "The server did not take it"}>
              {violations.length > 0 ? (
                <Violations located={located} onGoTo={(line) => goToLine(editor.current, line)} />
              ) : (
                <p role="alert">{sentence(error)}</p>
              )}
            </Panel>
          ) : plan.data !== undefined ? (
            <PlanPreview plan={plan.data} />
          ) : (
            <Panel title="Plan">
              <Notice title="Not checked yet">
                &ldquo;Check plan&rdquo; shows where every rank would run now, or what is missing. Nothing is submitted by
                it.
              </Notice>
            </Panel>
          )}
        </div>
      </div>
    </>
  );
}
