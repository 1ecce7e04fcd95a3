import { useLayoutEffect, useRef, useState } from "react";
import styles from "./log.module.css";

interface LogLinesProps {
  lines: string[];
  /** Marked wherever it occurs. */
  needle: string;
  /** Line to bring into view; null for none. */
  target: number | null;
  /** Stay at the end as lines come. */
  follow: boolean;
  /** The reader scrolled away from the end, or back to it. */
  onFollow: (follow: boolean) => void;
}

const LINE_HEIGHT = 18;
/** Lines drawn beyond the visible ones on either side. */
const MARGIN = 20;

/** Log lines in a box of their own that scrolls both ways; only the visible ones are in the document. */
export function LogLines({ lines, needle, target, follow, onFollow }: LogLinesProps) {
  const box = useRef<HTMLDivElement>(null);
  const [view, setView] = useState({ top: 0, height: 400 });

  useLayoutEffect(() => {
    const element = box.current;
    if (element === null) return;
    if (follow) element.scrollTop = element.scrollHeight;
    setView({ top: element.scrollTop, height: element.clientHeight });
  }, [follow, lines]);

  useLayoutEffect(() => {
    const element = box.current;
    if (element === null || target === null) return;
    element.scrollTop = Math.max(0, target * LINE_HEIGHT - element.clientHeight / 2);
    setView({ top: element.scrollTop, height: element.clientHeight });
  }, [target]);

  const onScroll = () => {
    const element = box.current;
    if (element === null) return;
    setView({ top: element.scrollTop, height: element.clientHeight });
    const atEnd = element.scrollTop + element.clientHeight >= element.scrollHeight - 2 * LINE_HEIGHT;
    if (follow && !atEnd) onFollow(false);
  };

  const first = Math.max(0, Math.floor(view.top / LINE_HEIGHT) - MARGIN);
  const last = Math.min(lines.length, Math.ceil((view.top + view.height) / LINE_HEIGHT) + MARGIN);
  return (
    <div
      ref={box}
      className={styles.box}
      role="log"
      aria-live="off"
      aria-label="Log lines"
      // oxlint-disable-next-line jsx-a11y/no-noninteractive-tabindex -- a scrolling region must take keys
      tabIndex={0}
      onScroll={onScroll}
    >
      <div style={{ height: lines.length * LINE_HEIGHT, position: "relative" }}>
        <div className={styles.lines} style={{ transform: `translateY(${first * LINE_HEIGHT}px)` }}>
          {lines.slice(first, last).map((line, i) => (
            <div key={first + i} className={styles.line} data-target={first + i === target || undefined}>
              {needle === "" ? line : <Marked text={line} needle={needle} />}
            </div>
          ))}
        </div>
      </div>
    </div>
  );
}

function Marked({ text, needle }: { text: string; needle: string }) {
  const parts: React.ReactNode[] = [];
  const lower = text.toLowerCase();
  const wanted = needle.toLowerCase();
  let start = 0;
  for (let at = lower.indexOf(wanted); at >= 0; at = lower.indexOf(wanted, start)) {
    parts.push(text.slice(start, at), <mark key={at}>{text.slice(at, at + wanted.length)}</mark>);
    start = at + wanted.length;
  }
  parts.push(text.slice(start));
  return <>{parts}</>;
}
