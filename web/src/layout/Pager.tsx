import { Button } from "@mantine/core";
import { count } from "../format/numbers";
import styles from "./layout.module.css";

interface PagerProps {
  /** First one shown. */
  start: number;
  page: number;
  total: number;
  /** What is counted: `node`. */
  noun: string;
  onStart: (start: number) => void;
}

/** Steps through the pages of a table; nothing where there is one page. */
export function Pager({ start, page, total, noun, onStart }: PagerProps) {
  if (total <= page) return null;
  return (
    <div className={styles.pager}>
      <span className="dim">
        {count(start + 1)} to {count(Math.min(start + page, total))} of {count(total)} {noun}s
      </span>
      <Button size="compact-xs" variant="default" disabled={start === 0} onClick={() => onStart(Math.max(0, start - page))}>
        Previous
      </Button>
      <Button size="compact-xs" variant="default" disabled={start + page >= total} onClick={() => onStart(start + page)}>
        Next
      </Button>
    </div>
  );
}
