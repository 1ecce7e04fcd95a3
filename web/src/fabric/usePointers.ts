import { type PointerEvent, type RefObject, useEffect, useRef } from "react";
import type { CameraControl } from "./useCamera";

/** A press that moves less than this, pixels, is a tap. */
const TAP = 5;
const WHEEL = 0.0016;
const LINE = 16;

interface Point {
  x: number;
  y: number;
}

interface Handlers {
  onHover: (at: Point | null) => void;
  onTap: (at: Point) => void;
}

/** Drag pans, two fingers and the wheel zoom; the wheel only with Ctrl, or once the drawing has the focus. */
export function usePointers(frame: RefObject<HTMLElement | null>, control: CameraControl, handlers: Handlers) {
  const down = useRef(new Map<number, Point>());
  const travelled = useRef(0);
  const local = ({ clientX, clientY }: { clientX: number; clientY: number }): Point => {
    const bounds = frame.current?.getBoundingClientRect();
    return { x: clientX - (bounds?.left ?? 0), y: clientY - (bounds?.top ?? 0) };
  };

  useEffect(() => {
    const element = frame.current;
    if (element === null) return;
    const onWheel = (event: WheelEvent) => {
      if (!event.ctrlKey && !event.metaKey && document.activeElement !== element) return;
      event.preventDefault();
      const pixels = event.deltaY * (event.deltaMode === WheelEvent.DOM_DELTA_LINE ? LINE : 1);
      const bounds = element.getBoundingClientRect();
      const at = { x: event.clientX - bounds.left, y: event.clientY - bounds.top };
      control.zoom(Math.exp(-pixels * WHEEL * (event.ctrlKey ? 4 : 1)), at);
    };
    // React listens passively, which cannot keep the page from scrolling.
    element.addEventListener("wheel", onWheel, { passive: false });
    return () => element.removeEventListener("wheel", onWheel);
  }, [frame, control]);

  const onPointerMove = (event: PointerEvent) => {
    const before = down.current.get(event.pointerId);
    const now = local(event);
    if (before === undefined) {
      if (event.pointerType === "mouse") handlers.onHover(now);
      return;
    }
    travelled.current += Math.hypot(now.x - before.x, now.y - before.y);
    if (down.current.size === 2) pinch(event.pointerId, before, now);
    else if (travelled.current > TAP) control.pan(now.x - before.x, now.y - before.y);
    down.current.set(event.pointerId, now);
  };

  const pinch = (moving: number, before: Point, now: Point) => {
    const other = [...down.current].find(([id]) => id !== moving)?.[1];
    if (other === undefined) return;
    const apart = (point: Point) => Math.max(1, Math.hypot(point.x - other.x, point.y - other.y));
    control.zoom(apart(now) / apart(before), { x: (now.x + other.x) / 2, y: (now.y + other.y) / 2 });
    control.pan((now.x - before.x) / 2, (now.y - before.y) / 2);
  };

  const onPointerDown = (event: PointerEvent) => {
    if (event.button !== 0) return;
    if (down.current.size === 0) travelled.current = 0;
    down.current.set(event.pointerId, local(event));
    event.currentTarget.setPointerCapture(event.pointerId);
  };

  const onPointerUp = (event: PointerEvent) => {
    if (!down.current.delete(event.pointerId) || event.type === "pointercancel") return;
    if (travelled.current <= TAP) handlers.onTap(local(event));
  };

  const onPointerLeave = (event: PointerEvent) => {
    if (event.pointerType === "mouse" && !down.current.has(event.pointerId)) handlers.onHover(null);
  };

  return { onPointerMove, onPointerDown, onPointerUp, onPointerCancel: onPointerUp, onPointerLeave };
}
