import { Button } from "@mantine/core";
import { useQueryClient } from "@tanstack/react-query";
import { useSyncExternalStore } from "react";
import { UnreachableError } from "../api/problem";
import styles from "./layout.module.css";

/** Says that the API does not answer, over whatever the page last knew. */
export function ConnectionBanner() {
  const queries = useQueryClient();
  const cache = queries.getQueryCache();
  const unreachable = useSyncExternalStore(
    (listener) => cache.subscribe(listener),
    () => cache.findAll({ type: "active" }).some(isUnreachable),
  );
  if (!unreachable) return null;
  return (
    <div role="alert" className={styles.banner}>
      <span>The Atoll API does not answer. What you see may be old; jobs go on without it.</span>
      <Button size="compact-xs" variant="default" onClick={() => void queries.refetchQueries({ type: "active" })}>
        Try now
      </Button>
    </div>
  );
}

function isUnreachable(query: { state: { error: unknown; fetchFailureReason: unknown } }): boolean {
  return query.state.error instanceof UnreachableError || query.state.fetchFailureReason instanceof UnreachableError;
}
