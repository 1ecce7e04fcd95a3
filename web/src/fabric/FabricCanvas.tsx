import { useComputedColorScheme } from "@mantine/core";
import { type KeyboardEvent, type Ref, useCallback, useEffect, useId, useImperativeHandle, useRef } from "react";
import { plural } from "../format/numbers";
import type { Rgb } from "../theme/color";
import { type Camera, isClose, type Size } from "./camera";
import styles from "./fabric.module.css";
import { paint, type Palette, paletteOf } from "./paint";
import { domainAt, type Look, sceneOf, sizeOf } from "./scene";
import type { Domain, Tree } from "./tree";
import { useCamera } from "./useCamera";
import { usePointers } from "./usePointers";
import { KEYS, walk } from "./walk";

export interface CanvasHandle {
  zoom: (factor: number) => void;
  show: (domain: Domain) => void;
}

interface FabricCanvasProps {
  ref: Ref<CanvasHandle>;
  tree: Tree;
  look: Look;
  /** By index of the job. */
  colors: readonly Rgb[];
  /** Shown as large as fits. */
  at: Domain;
  cursor: Domain | null;
  onCursor: (domain: Domain | null) => void;
  /** Enter or a double click on a domain. */
  onOpen: (domain: Domain) => void;
  /** Escape: back to the domain around. */
  onLeave: () => void;
  found: readonly Domain[];
}

/** The fabric on one canvas of the size of its frame: what a frame costs does not grow with what lies outside of it. */
export function FabricCanvas({ ref, tree, look, colors, at, cursor, onCursor, onOpen, onLeave, found }: FabricCanvasProps) {
  const frame = useRef<HTMLDivElement>(null);
  const canvas = useRef<HTMLCanvasElement>(null);
  const palette = useRef<Palette | null>(null);
  const scheme = useComputedColorScheme("light");
  const hint = useId();
  const shown = useRef<unknown[]>([]);

  const draw = useCallback(
    (camera: Camera, screen: Size) => {
      if (canvas.current === null || palette.current === null || screen.width === 0 || camera.scale === 0) return;
      const scene = sceneOf(tree, look, camera, screen);
      paint(canvas.current, screen, scene, { camera, palette: palette.current, marks: { cursor, found } });
      canvas.current.dataset["drawn"] = String(sizeOf(scene));
      // A finger scrolls the page as long as there is nothing to move in the drawing.
      if (frame.current !== null) frame.current.style.touchAction = isClose(camera, tree.root, screen) ? "none" : "pan-y";
    },
    [tree, look, cursor, found],
  );
  const control = useCamera(frame, tree.root, draw);
  const { camera, screen } = control;

  useEffect(() => {
    if (canvas.current !== null) palette.current = paletteOf(canvas.current, colors);
    const wanted = [tree, at.id, screen];
    if (screen.width > 0 && wanted.some((value, i) => value !== shown.current[i])) {
      shown.current = wanted;
      control.show(at);
    } else draw(camera.current, screen);
  }, [control, camera, colors, scheme, tree, at, screen, draw]);

  useImperativeHandle(ref, () => ({ zoom: (factor) => control.zoom(factor), show: control.show }), [control]);

  const pointers = usePointers(frame, control, {
    onHover: (point) => {
      if (point !== null) onCursor(domainAt(tree, camera.current, point));
      else if (document.activeElement !== frame.current) onCursor(null);
    },
    onTap: (point) => onCursor(domainAt(tree, camera.current, point)),
  });

  const onKeyDown = (event: KeyboardEvent) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const step = KEYS[event.key];
    const from = cursor ?? at.children[0] ?? at;
    if (step !== undefined) {
      const next = walk(tree, from, step);
      onCursor(next);
      control.reveal(next);
    } else if (event.key === "Enter") onOpen(from);
    else if (event.key === "Escape") onLeave();
    else if (event.key === "+" || event.key === "=") control.zoom(1.5);
    else if (event.key === "-") control.zoom(1 / 1.5);
    else if (event.key === "0") control.show(tree.root);
    else return;
    event.preventDefault();
  };

  return (
    <>
      <div
        ref={frame}
        className={styles.frame}
        role="application"
        aria-label={`Fabric with ${plural(tree.slots.length, "slot")}`}
        aria-describedby={hint}
        // oxlint-disable-next-line jsx-a11y/no-noninteractive-tabindex -- a composite widget with keys of its own
        tabIndex={0}
        onKeyDown={onKeyDown}
        onFocus={() => cursor === null && onCursor(at.children[0] ?? at)}
        onDoubleClick={() => cursor !== null && onOpen(cursor)}
        {...pointers}
      >
        <canvas ref={canvas} className={styles.canvas} aria-hidden="true" />
      </div>
      <p id={hint} className={styles.hint}>
        Drag to move; wheel (with Ctrl, or after a click) or two fingers to zoom. Keys: arrows go along a tier, Enter goes
        inside or opens the job, Escape goes out, + − 0 zoom.
      </p>
    </>
  );
}
