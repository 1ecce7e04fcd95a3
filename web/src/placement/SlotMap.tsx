import { useComputedColorScheme } from "@mantine/core";
import { type KeyboardEvent, type PointerEvent, useEffect, useLayoutEffect, useMemo, useRef, useState } from "react";
import { css, inkOn, type Rgb } from "../theme/color";
import { cellAt, type Direction, layOut, neighbour } from "./layout";
import { paint } from "./paint";
import styles from "./placement.module.css";
import { arrange, type Place } from "./tree";

export interface Look {
  /** Null: an empty slot, drawn hollow. */
  fill: Rgb | null;
  /** Drawn in the cell where there is room. */
  text: string;
  /** Crossed out: the node is gone or takes no work. */
  out?: boolean;
}

interface SlotMapProps {
  label: string;
  places: readonly Place[];
  /** How the slot at an index of `places` looks. */
  look: (slot: number) => Look;
  /** Active slot, by index of `places`; null for none. */
  active: number | null;
  onActive: (slot: number | null) => void;
  /** Whether a slot belongs with the active one; the others are dimmed. */
  related?: (slot: number) => boolean;
  onOpen?: (slot: number) => void;
}

const KEYS: Partial<Record<string, Direction>> = {
  ArrowLeft: "left",
  ArrowRight: "right",
  ArrowUp: "up",
  ArrowDown: "down",
  Home: "first",
  End: "last",
};

/**
 * Slots drawn where they are on one canvas: leaf, node, island, accelerator. The canvas covers only the visible part
 * and is painted again on scroll, so its size does not grow with the cluster.
 */
export function SlotMap({ label, places, look, active, onActive, related, onOpen }: SlotMapProps) {
  const frame = useRef<HTMLDivElement>(null);
  const canvas = useRef<HTMLCanvasElement>(null);
  const [view, setView] = useState({ width: 0, height: 0, top: 0 });
  const scheme = useComputedColorScheme("light");
  const tree = useMemo(() => arrange(places), [places]);
  const drawing = useMemo(
    () => (view.width === 0 ? null : layOut(tree, places.length, view.width)),
    [tree, places.length, view.width],
  );

  useLayoutEffect(() => {
    const element = frame.current;
    if (element === null) return;
    const measure = () => {
      const next = { width: element.clientWidth, height: element.clientHeight, top: element.scrollTop };
      setView((now) => (now.width === next.width && now.height === next.height && now.top === next.top ? now : next));
    };
    measure();
    const resize = new ResizeObserver(measure);
    resize.observe(element);
    element.addEventListener("scroll", measure, { passive: true });
    return () => {
      resize.disconnect();
      element.removeEventListener("scroll", measure);
    };
  }, [drawing?.height]);

  useEffect(() => {
    if (canvas.current === null || drawing === null) return;
    paint({ canvas: canvas.current, drawing, view, look, active, related });
  }, [drawing, view, look, active, related, scheme]);

  const activeCell = drawing === null || active === null ? -1 : drawing.cells.findIndex(({ slot }) => slot === active);

  const onKeyDown = (event: KeyboardEvent) => {
    if (drawing === null || drawing.cells.length === 0) return;
    if (event.key === "Enter" && active !== null) onOpen?.(active);
    if (event.key === "Escape") onActive(null);
    const direction = KEYS[event.key];
    if (direction === undefined) return;
    event.preventDefault();
    const next = drawing.cells[activeCell < 0 ? 0 : neighbour(drawing, activeCell, direction)];
    if (next === undefined) return;
    onActive(next.slot);
    const element = frame.current;
    if (element === null) return;
    if (next.y < element.scrollTop) element.scrollTop = next.y - 30;
    else if (next.y + drawing.side > element.scrollTop + element.clientHeight) {
      element.scrollTop = next.y + drawing.side + 10 - element.clientHeight;
    }
  };

  const at = (event: PointerEvent) => {
    const bounds = canvas.current?.getBoundingClientRect();
    if (drawing === null || bounds === undefined) return null;
    const cell = cellAt(drawing, event.clientX - bounds.left, event.clientY - bounds.top + view.top);
    return drawing.cells[cell]?.slot ?? null;
  };

  return (
    <div
      ref={frame}
      className={styles.frame}
      role="application"
      aria-label={`${label}. Arrow keys go from slot to slot.`}
      // oxlint-disable-next-line jsx-a11y/no-noninteractive-tabindex -- a composite widget with keys of its own
      tabIndex={0}
      onKeyDown={onKeyDown}
      onFocus={() => active === null && drawing?.cells[0] !== undefined && onActive(drawing.cells[0].slot)}
      onPointerMove={(event) => event.pointerType === "mouse" && onActive(at(event))}
      onPointerLeave={(event) => event.pointerType === "mouse" && document.activeElement !== frame.current && onActive(null)}
      onPointerDown={(event) => onActive(at(event))}
      onDoubleClick={() => active !== null && onOpen?.(active)}
    >
      <div style={{ height: drawing?.height ?? 120 }}>
        <canvas ref={canvas} className={styles.canvas} aria-hidden="true" />
      </div>
    </div>
  );
}

/** A small square of a colour, with or without text, for legends. */
export function Swatch({ color }: { color: Rgb | null }) {
  const style = color === null ? undefined : { background: css(color), color: css(inkOn(color)) };
  return <span className={styles.swatch} data-empty={color === null || undefined} style={style} aria-hidden="true" />;
}
