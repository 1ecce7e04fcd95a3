import { type RefObject, useCallback, useEffect, useLayoutEffect, useMemo, useRef, useState } from "react";
import { type Box, type Camera, clamped, fit, pan, reveal, type Size, zoom } from "./camera";

const GLIDE_MS = 220;
const MARGIN = 6;

export interface CameraControl {
  /** The camera of the next frame; read it while drawing, not while rendering. */
  camera: RefObject<Camera>;
  /** Size of the frame, CSS pixels; zero before it is known. */
  screen: Size;
  pan: (dx: number, dy: number) => void;
  zoom: (factor: number, at?: { x: number; y: number }) => void;
  show: (box: Box) => void;
  reveal: (box: Box) => void;
}

/** Zoom and pan of a drawing inside `frame`. Movements do not render: `draw` is called once for each frame. */
export function useCamera(frame: RefObject<HTMLElement | null>, whole: Box, draw: (camera: Camera, screen: Size) => void): CameraControl {
  const [screen, setScreen] = useState<Size>({ width: 0, height: 0 });
  const camera = useRef<Camera>({ scale: 0, x: 0, y: 0 });
  const pending = useRef(0);
  const latest = useRef({ draw, screen });
  useEffect(() => {
    latest.current = { draw, screen };
  }, [draw, screen]);

  useLayoutEffect(() => {
    const element = frame.current;
    if (element === null) return;
    const measure = () => {
      const next = { width: element.clientWidth, height: element.clientHeight };
      setScreen((now) => (now.width === next.width && now.height === next.height ? now : next));
    };
    measure();
    const resize = new ResizeObserver(measure);
    resize.observe(element);
    return () => resize.disconnect();
  }, [frame]);

  useEffect(() => () => cancelAnimationFrame(pending.current), []);

  /** Draws `next(progress)` in the frames to come until progress is 1; a later movement takes over. */
  const move = useCallback((next: (progress: number) => Camera, milliseconds: number) => {
    cancelAnimationFrame(pending.current);
    const began = performance.now();
    const step = () => {
      const progress = milliseconds === 0 ? 1 : Math.min(1, (performance.now() - began) / milliseconds);
      camera.current = next(progress);
      latest.current.draw(camera.current, latest.current.screen);
      if (progress < 1) pending.current = requestAnimationFrame(step);
    };
    pending.current = requestAnimationFrame(step);
  }, []);

  return useMemo(() => {
    const at = (next: Camera) => {
      camera.current = next;
      move(() => next, 0);
    };
    const glide = (to: Camera) => {
      const from = camera.current;
      const still = from.scale === 0 || matchMedia("(prefers-reduced-motion: reduce)").matches;
      move((progress) => between(from, to, progress, screen), still ? 0 : GLIDE_MS);
    };
    return {
      camera,
      screen,
      pan: (dx, dy) => at(pan(camera.current, dx, dy, whole, screen)),
      zoom: (factor, point = { x: screen.width / 2, y: screen.height / 2 }) =>
        at(zoom(camera.current, factor, point, whole, screen)),
      show: (box) => glide(clamped(fit(box, screen, MARGIN), whole, screen)),
      reveal: (box) => at(reveal(camera.current, box, screen)),
    };
  }, [move, screen, whole]);
}

/** A camera on the way: the middle of the screen moves evenly, the scale by equal factors. */
function between(from: Camera, to: Camera, progress: number, { width, height }: Size): Camera {
  if (progress >= 1) return to;
  const eased = progress * (2 - progress);
  const scale = from.scale * (to.scale / from.scale) ** eased;
  const middle = (a: number, b: number, size: number) => {
    const [first, last] = [a + size / from.scale / 2, b + size / to.scale / 2];
    return first + (last - first) * eased - size / scale / 2;
  };
  return { scale, x: middle(from.x, to.x, width), y: middle(from.y, to.y, height) };
}
