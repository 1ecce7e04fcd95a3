/** Which part of the drawing is on the screen: zoom and pan as arithmetic. */

import { SIDE } from "./layout";

export interface Box {
  x: number;
  y: number;
  width: number;
  height: number;
}

export interface Size {
  width: number;
  height: number;
}

/** Screen pixels = (units − corner) × scale. */
export interface Camera {
  scale: number;
  x: number;
  y: number;
}

/** Largest side of a slot on the screen, pixels. */
const LARGEST_SIDE = 160;

function fitScale(box: Size, screen: Size): number {
  return Math.min(screen.width / Math.max(box.width, 1), screen.height / Math.max(box.height, 1));
}

/** `box` as large as fits, in the middle; a small one no larger than slots may be. */
export function fit(box: Box, screen: Size, margin = 0): Camera {
  const room = { width: Math.max(1, screen.width - 2 * margin), height: Math.max(1, screen.height - 2 * margin) };
  const scale = Math.min(fitScale(box, room), LARGEST_SIDE / SIDE);
  return {
    scale,
    x: box.x + box.width / 2 - screen.width / scale / 2,
    y: box.y + box.height / 2 - screen.height / scale / 2,
  };
}

/** Zooms by `factor` around a point of the screen, which stays where it is. */
export function zoom(camera: Camera, factor: number, at: { x: number; y: number }, whole: Box, screen: Size): Camera {
  const least = Math.min(fitScale(whole, screen), LARGEST_SIDE / SIDE);
  const scale = Math.min(Math.max(camera.scale * factor, least), LARGEST_SIDE / SIDE);
  const moved = {
    scale,
    x: camera.x + at.x / camera.scale - at.x / scale,
    y: camera.y + at.y / camera.scale - at.y / scale,
  };
  return clamped(moved, whole, screen);
}

/** Moves the drawing by pixels of the screen. */
export function pan(camera: Camera, dx: number, dy: number, whole: Box, screen: Size): Camera {
  return clamped({ ...camera, x: camera.x - dx / camera.scale, y: camera.y - dy / camera.scale }, whole, screen);
}

/** Whether there is more than what is on the screen. */
export function isClose(camera: Camera, whole: Box, screen: Size): boolean {
  return camera.scale > fitScale(whole, screen) * 1.01;
}

/** Keeps the drawing on the screen: a side that is smaller than the screen stays in the middle. */
export function clamped(camera: Camera, whole: Box, screen: Size): Camera {
  const along = (corner: number, start: number, length: number, pixels: number) => {
    const shown = pixels / camera.scale;
    if (shown >= length) return start + (length - shown) / 2;
    return Math.min(Math.max(corner, start), start + length - shown);
  };
  return {
    scale: camera.scale,
    x: along(camera.x, whole.x, whole.width, screen.width),
    y: along(camera.y, whole.y, whole.height, screen.height),
  };
}

/** The least movement that brings `box` on the screen. */
export function reveal(camera: Camera, box: Box, screen: Size): Camera {
  const along = (corner: number, start: number, length: number, pixels: number) => {
    const shown = pixels / camera.scale;
    if (start < corner || length > shown) return start;
    return Math.max(corner, start + length - shown);
  };
  return {
    scale: camera.scale,
    x: along(camera.x, box.x, box.width, screen.width),
    y: along(camera.y, box.y, box.height, screen.height),
  };
}

export function onScreen(camera: Camera, box: Box): Box {
  return {
    x: (box.x - camera.x) * camera.scale,
    y: (box.y - camera.y) * camera.scale,
    width: box.width * camera.scale,
    height: box.height * camera.scale,
  };
}
