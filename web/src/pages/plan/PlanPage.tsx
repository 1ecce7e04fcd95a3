import { Button, NumberInput } from "@mantine/core";
import { useMutation, useQuery } from "@tanstack/react-query";
import { getRouteApi, useLocation } from "@tanstack/react-router";
import { useRef, useState } from "react";
import { ProblemError, sentence } from "../../api/problem";
import { jobQuery, searchPlans } from "../../api/queries";
import { toYaml } from "../../format/yaml";
import layout from "../../layout/layout.module.css";
import { Failure, Loading, Notice } from "../../layout/Notice";
import { Panel } from "../../layout/Panel";
import { useTitle } from "../../layout/title";
import { goToLine, JobEditor } from "../submit/JobEditor";
import DEMO_JOB from "../submit/demo.yaml?raw";
import { locate, Violations } from "../submit/Violations";
import { PlanComparison } from "./PlanComparison";
import styles from "./plan.module.css";

const route = getRouteApi("/plan");

/** A job file goes in; the best plans for it come out, beside its own. */
export function PlanPage() {
  useTitle("Compare plans");
  const { from } = route.useSearch();
  const draft = useLocation({ select: ({ state }) => state.draft });
  const source = useQuery({ ...jobQuery(from ?? ""), enabled: from !== undefined, refetchInterval: false });
  if (from === undefined || source.isError) return <PlanForm key={draft} initial={draft ?? DEMO_JOB} />;
  if (source.data !== undefined) return <PlanForm initial={toYaml(source.data.spec)} />;
  return <Loading label="Loading the job file" rows={8} />;
}

function PlanForm({ initial }: { initial: string }) {
  const [text, setText] = useState(initial);
  const [ranks, setRanks] = useState<number | undefined>();
  const [tokens, setTokens] = useState<number | undefined>();
  const editor = useRef<HTMLTextAreaElement>(null);
  const plans = useMutation({ mutationFn: searchPlans });
  const violations = plans.error instanceof ProblemError ? plans.error.violations : [];
  const located = locate(text, violations);
  const compare = () => plans.mutate({ jobFile: text, ranks, tokens });
  return (
    <>
      <div className={layout.pageHead}>
        <h1>Compare plans</h1>
      </div>
      <div className={styles.page}>
        <Panel title="Job file" flush>
          <details className={styles.file} open={plans.data === undefined}>
            <summary>The plan in it is compared with the best that are found</summary>
            <JobEditor
              ref={editor}
              value={text}
              onChange={(value) => {
                setText(value);
                plans.reset();
              }}
              marked={located.flatMap(({ line }) => line ?? [])}
            />
          </details>
          <div className={styles.question}>
            <Figure label="Accelerators" placeholder="those of the plan" value={ranks} onChange={setRanks} />
            <Figure label="Tokens to train" placeholder="those of the steps" value={tokens} onChange={setTokens} />
            <Button loading={plans.isPending} disabled={text.trim() === ""} onClick={compare}>
              Compare plans
            </Button>
          </div>
        </Panel>
        <div aria-live="polite">
          {plans.isPending ? (
            <Panel title="Plans">
              <p className="dim">Searching: every plan that the engine takes is estimated. This takes seconds.</p>
              <Loading label="Searching for plans" rows={8} />
            </Panel>
          ) : violations.length > 0 ? (
            <Panel title="This job cannot be taken">
              <Violations located={located} onGoTo={(line) => goToLine(editor.current, line)} />
            </Panel>
          ) : plans.error !== null ? (
            <Failure title="The plans could not be compared" error={sentence(plans.error)} onRetry={compare} />
          ) : plans.data !== undefined ? (
            <PlanComparison answer={plans.data} />
          ) : (
            <Panel title="Plans">
              <Notice title="Not compared yet">
                &ldquo;Compare plans&rdquo; searches for the ten fastest plans that fit, and shows memory, step time and
                communication of each beside the job&rsquo;s own. Nothing is submitted by it.
              </Notice>
            </Panel>
          )}
        </div>
      </div>
    </>
  );
}

interface FigureProps {
  label: string;
  placeholder: string;
  value: number | undefined;
  onChange: (value: number | undefined) => void;
}

function Figure({ label, placeholder, value, onChange }: FigureProps) {
  return (
    <NumberInput
      size="xs"
      label={label}
      placeholder={placeholder}
      value={value ?? ""}
      min={1}
      allowDecimal={false}
      thousandSeparator=","
      hideControls
      onChange={(typed) => onChange(typeof typed === "number" ? typed : undefined)}
    />
  );
}
