/** The typed client: every call to the REST API goes through here. */

import createClient from "openapi-fetch";
import { errorFor, UnreachableError } from "./problem";
import { setRefused, storedToken } from "./token";
import type { paths } from "./types";

/** `fetch` with the stored token; notes a 401 so that the token dialog opens. Rejects with UnreachableError. */
export async function authorizedFetch(request: Request): Promise<Response> {
  const token = storedToken();
  if (token !== null) request.headers.set("Authorization", `Bearer ${token}`);
  let response: Response;
  try {
    response = await globalThis.fetch(request);
  } catch (error) {
    if (error instanceof DOMException && error.name === "AbortError") throw error;
    throw new UnreachableError("The Atoll API does not answer.");
  }
  if (response.status === 401) setRefused(true);
  return response;
}

export const api = createClient<paths>({
  baseUrl: globalThis.location.origin,
  fetch: authorizedFetch,
});

interface Answer<T> {
  data?: T;
  error?: unknown;
  response: Response;
}

/** The body of a 2xx answer; throws ProblemError or UnreachableError otherwise. */
export async function body<T>(call: Promise<Answer<T>>): Promise<NonNullable<T>> {
  const { data, error, response } = await call;
  if (response.ok && data != null) return data;
  throw errorFor(response.status, error);
}
