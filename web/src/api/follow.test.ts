// @vitest-environment happy-dom
import { afterEach, expect, it, vi } from "vitest";
import { follow } from "./follow";
import { storeToken, tokenRefused } from "./token";

afterEach(() => {
  vi.unstubAllGlobals();
  sessionStorage.clear();
});

it("sends the token, goes on after the last id when a connection breaks, and stops at the end", async () => {
  const seen: { last: string | null; token: string | null }[] = [];
  const bodies = ["retry: 1\n\nid: 1\ndata: a\n\nid: 2\ndata: b\n\nid: 3\ndata: cut off", "id: 3\ndata: c\n\nevent: end\ndata: {}\n\n"];
  vi.stubGlobal("fetch", (request: Request) => {
    seen.push({ last: request.headers.get("Last-Event-ID"), token: request.headers.get("Authorization") });
    return Promise.resolve(new Response(bodies[seen.length - 1] ?? "", { headers: { "Content-Type": "text/event-stream" } }));
  });
  storeToken("secret");
  const data: string[] = [];
  await follow({
    url: "/stream",
    lastId: "",
    signal: new AbortController().signal,
    onEvents: (events) => data.push(...events.map((event) => event.data)),
    onConnected: () => {},
  });
  expect(data).toEqual(["a", "b", "c"]);
  expect(seen).toEqual([
    { last: null, token: "Bearer secret" },
    { last: "2", token: "Bearer secret" },
  ]);
});

it("notes a refused token and keeps trying", async () => {
  const stop = new AbortController();
  vi.stubGlobal("fetch", () => Promise.resolve(new Response("{}", { status: 401 })));
  const phases: boolean[] = [];
  await follow({
    url: "/stream",
    lastId: "",
    signal: stop.signal,
    onEvents: () => {},
    onConnected: (connected) => {
      phases.push(connected);
      stop.abort();
    },
  });
  expect(tokenRefused()).toBe(true);
  expect(phases).toEqual([false]);
});
