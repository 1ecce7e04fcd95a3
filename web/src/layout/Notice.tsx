import { Button, Skeleton } from "@mantine/core";
import type { ReactNode } from "react";
import { sentence } from "../api/problem";
import styles from "./layout.module.css";

/** What stands where data would: nothing yet, nothing found, or a failure. */
export function Notice({ title, children, actions }: { title: string; children?: ReactNode; actions?: ReactNode }) {
  return (
    <div className={styles.notice}>
      <h2>{title}</h2>
      {children !== undefined && <p>{children}</p>}
      {actions !== undefined && <div className={styles.noticeActions}>{actions}</div>}
    </div>
  );
}

export function Failure({ title, error, onRetry }: { title: string; error: unknown; onRetry?: () => void }) {
  return (
    <div role="alert">
      <Notice
        title={title}
        actions={
          onRetry && (
            <Button variant="default" size="xs" onClick={onRetry}>
              Try again
            </Button>
          )
        }
      >
        {sentence(error)}
      </Notice>
    </div>
  );
}

/** Grey bars in the place of text that is on its way. */
export function Loading({ label, rows = 6, height = 18 }: { label: string; rows?: number; height?: number }) {
  return (
    <div role="status" aria-label={label}>
      {Array.from({ length: rows }, (_, row) => (
        // oxlint-disable-next-line react/no-array-index-key -- bars have no identity but their place
        <Skeleton key={row} height={height} mb={10} width={row % 3 === 2 ? "70%" : "100%"} />
      ))}
    </div>
  );
}
