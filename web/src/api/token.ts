/** The bearer token of this browser tab. It lives in sessionStorage: gone when the tab is closed, never in a URL. */

const KEY = "atoll-token";

type Listener = () => void;

const listeners = new Set<Listener>();
let refused = false;

export function storedToken(): string | null {
  return sessionStorage.getItem(KEY);
}

export function storeToken(token: string): void {
  sessionStorage.setItem(KEY, token);
  setRefused(false);
}

/** True after the API answered 401 and until a new token is stored: the token dialog shows then. */
export function tokenRefused(): boolean {
  return refused;
}

export function setRefused(value: boolean): void {
  if (refused === value) return;
  refused = value;
  for (const listener of listeners) listener();
}

export function onRefusedChange(listener: Listener): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}
