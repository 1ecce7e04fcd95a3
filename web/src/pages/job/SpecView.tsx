import { Button, SegmentedControl } from "@mantine/core";
import { useClipboard } from "@mantine/hooks";
import { Link } from "@tanstack/react-router";
import { useState } from "react";
import type { JobDetail } from "../../api/queries";
import { toYaml } from "../../format/yaml";
import styles from "./job.module.css";

/** The job file with every default filled in. */
export function SpecView({ job }: { job: JobDetail }) {
  const [format, setFormat] = useState("YAML");
  const clipboard = useClipboard();
  const text = format === "YAML" ? toYaml(job.spec) : `${JSON.stringify(job.spec, null, 2)}\n`;
  return (
    <>
      <div className={styles.toolbar}>
        <SegmentedControl size="xs" aria-label="Format" value={format} onChange={setFormat} data={["YAML", "JSON"]} />
        <Button size="xs" variant="default" onClick={() => clipboard.copy(text)}>
          {clipboard.copied ? "Copied" : "Copy"}
        </Button>
        <Link to="/submit" search={{ from: job.id }} className={styles.again}>
          Start a new job from this file
        </Link>
        <Link to="/plan" search={{ from: job.id }}>
          Compare plans for it
        </Link>
      </div>
      {/* oxlint-disable-next-line jsx-a11y/no-noninteractive-tabindex -- a scrolling region must take keys */}
      <pre tabIndex={0} className={styles.spec} aria-label={`Job file, ${format}`}>
        {text}
      </pre>
    </>
  );
}
