import { useComputedColorScheme } from "@mantine/core";
import { type KeyboardEvent, type PointerEvent, useEffect, useLayoutEffect, useMemo, useRef, useState } from "react";
import type { TimelineView } from "../api/queries";
import { Swatch } from "../placement/SlotMap";
import { workColor } from "./colors";
import { laneAt, layOut, xOf } from "./layout";
import { paint } from "./paint";
import { chunks, type Direction, firstPlace, neighbour, type Place, sentenceOf, summary, WORK_NAMES, worksOf } from "./spans";
import styles from "./timeline.module.css";

const KEYS: Partial<Record<string, Direction>> = {
  ArrowLeft: "left",
  ArrowRight: "right",
  ArrowUp: "up",
  ArrowDown: "down",
  Home: "first",
  End: "last",
};

/** Ranks as lanes over time: each piece of work by its micro-batch, grey where a rank idled. */
export function TimelineChart({ shown }: { shown: TimelineView }) {
  const frame = useRef<HTMLDivElement>(null);
  const canvas = useRef<HTMLCanvasElement>(null);
  const [available, setAvailable] = useState(0);
  const [active, setActive] = useState<Place | null>(null);
  const scheme = useComputedColorScheme("light");
  const { ranks, window_us: windowUs } = shown;
  const drawing = useMemo(() => (available === 0 ? null : layOut(ranks, available)), [ranks, available]);
  const chunkOf = useMemo(() => chunks(ranks), [ranks]);

  useLayoutEffect(() => {
    const element = frame.current;
    if (element === null) return;
    const measure = () => setAvailable(element.clientWidth);
    measure();
    const resize = new ResizeObserver(measure);
    resize.observe(element);
    return () => resize.disconnect();
  }, []);

  useEffect(() => setActive(null), [shown.attempt, shown.step]);

  useEffect(() => {
    if (canvas.current !== null && drawing !== null) {
      paint({ canvas: canvas.current, drawing, shown, chunkOf, active, scheme });
    }
  }, [drawing, shown, chunkOf, active, scheme]);

  const onKeyDown = (event: KeyboardEvent) => {
    if (event.key === "Escape") setActive(null);
    const direction = KEYS[event.key];
    if (direction === undefined || drawing === null) return;
    event.preventDefault();
    const next = active === null ? firstPlace(ranks) : neighbour(ranks, active, direction);
    setActive(next);
    const span = next === null ? undefined : ranks[next.lane]?.spans[next.span];
    if (next === null || span === undefined) return;
    const middle = xOf(drawing, windowUs, (span[3] + span[4]) / 2);
    frame.current?.scrollTo({
      left: middle - frame.current.clientWidth / 2,
      top: next.lane * drawing.lane - frame.current.clientHeight / 2,
    });
  };

  const at = (event: PointerEvent) => {
    const bounds = canvas.current?.getBoundingClientRect();
    if (drawing === null || bounds === undefined) return null;
    return laneAt(drawing, ranks, windowUs, event.clientX - bounds.left, event.clientY - bounds.top);
  };

  const rank = active === null ? undefined : ranks[active.lane];
  const span = active === null ? undefined : rank?.spans[active.span];
  return (
    <>
      <div
        ref={frame}
        className={styles.frame}
        role="application"
        aria-label={`${summary(shown)}. Arrow keys go from work to work.`}
        // oxlint-disable-next-line jsx-a11y/no-noninteractive-tabindex -- a composite widget with keys of its own
        tabIndex={0}
        onKeyDown={onKeyDown}
        onFocus={() => active === null && setActive(firstPlace(ranks))}
        onPointerMove={(event) => event.pointerType === "mouse" && setActive(at(event))}
        onPointerLeave={(event) => event.pointerType === "mouse" && document.activeElement !== frame.current && setActive(null)}
        onPointerDown={(event) => setActive(at(event))}
      >
        <canvas ref={canvas} className={styles.canvas} aria-hidden="true" />
      </div>
      <ul className={styles.legend} aria-label="Legend">
        {worksOf(ranks).map((work) => (
          <li key={work}>
            <Swatch color={workColor(work, 0, scheme)} /> {WORK_NAMES[work]}
          </li>
        ))}
        <li>
          <span className={styles.idle} aria-hidden="true" /> idle
        </li>
        {shown.virtual_stages > 1 && <li className="dim">lighter: a later stage of the same rank</li>}
      </ul>
      <p className={styles.detail} aria-live="polite">
        {rank === undefined || span === undefined ? (
          <span className="dim">Point at a piece of work, or move with the arrow keys, to read it. Numbers are micro-batches.</span>
        ) : (
          sentenceOf(rank, span)
        )}
      </p>
    </>
  );
}
