import { useCallback, useEffect, useRef, useState } from "react";
import { ProblemError } from "../../api/problem";
import { readLog } from "../../api/queries";
import { append, type LogBuffer, prepend } from "./logBuffer";

const TAIL_BYTES = 128 * 1024;
const POLL_MS = 1_000;

interface LogState {
  buffer: LogBuffer | null;
  /** Why nothing newer can be read just now. */
  error: unknown;
  loading: boolean;
}

interface LogOptions {
  jobId: string;
  rank: number;
  attempt: number | undefined;
  /** Keep asking for what is written. */
  live: boolean;
}

/** One rank's log: its end at first, then what is written while `live`, earlier parts on demand. */
export function useLog({ jobId, rank, attempt, live }: LogOptions) {
  const [state, setState] = useState<LogState>({ buffer: null, error: null, loading: true });
  const held = useRef<LogBuffer | null>(null);

  useEffect(() => {
    const stop = new AbortController();
    let timer: ReturnType<typeof setTimeout> | undefined;
    held.current = null;
    setState({ buffer: null, error: null, loading: true });

    const poll = async () => {
      let caughtUp = true;
      try {
        caughtUp = await readOn(stop.signal);
      } catch (error) {
        if (stop.signal.aborted) return;
        setState((now) => ({ ...now, error, loading: false }));
      }
      if (stop.signal.aborted || (caughtUp && !live)) return;
      timer = setTimeout(() => void poll(), caughtUp ? POLL_MS : 0);
    };
    const readOn = async (signal: AbortSignal): Promise<boolean> => {
      const buffer = held.current;
      const view = await readLog(
        jobId,
        { rank, attempt, offset: buffer?.end ?? -TAIL_BYTES, limit: TAIL_BYTES },
        signal,
      );
      const restarted = buffer !== null && view.attempt !== buffer.attempt;
      // Another attempt has begun: what was asked for by offset is of no use, ask for its end.
      held.current = restarted ? null : append(buffer, view);
      if (!restarted) setState({ buffer: held.current, error: null, loading: false });
      return !restarted && view.next_offset >= view.size;
    };
    void poll();
    return () => {
      stop.abort();
      clearTimeout(timer);
    };
  }, [jobId, rank, attempt, live]);

  const readEarlier = useCallback(async () => {
    const buffer = held.current;
    if (buffer === null || buffer.start === 0) return;
    const offset = Math.max(0, buffer.start - TAIL_BYTES);
    const request = { rank, attempt: buffer.attempt, offset, limit: Math.max(16, buffer.start - offset) };
    try {
      const view = await readLog(jobId, request, new AbortController().signal);
      if (held.current === null) return;
      held.current = prepend(held.current, view);
      setState((now) => ({ ...now, buffer: held.current }));
    } catch (error) {
      setState((now) => ({ ...now, error }));
    }
  }, [jobId, rank]);

  const missing = state.error instanceof ProblemError && state.error.status === 404;
  return { ...state, missing, readEarlier };
}
