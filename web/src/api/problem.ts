/** What can go wrong between this page and the API, as two kinds of error. */

import type { components } from "./types";

export type Problem = components["schemas"]["Problem"];
export type Violation = components["schemas"]["ProblemViolation"];

/** The API answered and refused. */
export class ProblemError extends Error {
  override readonly name = "ProblemError";
  readonly status: number;
  readonly violations: Violation[];

  constructor(problem: Problem) {
    super(problem.detail || problem.title);
    this.status = problem.status;
    this.violations = problem.violations ?? [];
  }
}

/** Nothing answered, or not Atoll's API: a network error, a gateway's page. */
export class UnreachableError extends Error {
  override readonly name = "UnreachableError";
}

function isProblem(body: unknown): body is Problem {
  return typeof body === "object" && body !== null && "title" in body && "status" in body;
}

/** The error for an answer that is not 2xx. */
export function errorFor(status: number, body: unknown): ProblemError | UnreachableError {
  if (isProblem(body)) return new ProblemError(body);
  if (status === 502 || status === 503 || status === 504) {
    return new UnreachableError(`A gateway answered ${status} in place of the Atoll API.`);
  }
  return new ProblemError({
    type: "about:blank",
    title: "Unexpected answer",
    status,
    detail: `The server answered ${status} without saying why.`,
    instance: null,
    violations: [],
  });
}

/** One sentence for people. */
export function sentence(error: unknown): string {
  if (error instanceof ProblemError || error instanceof UnreachableError) return error.message;
  return error instanceof Error ? error.message : String(error);
}

/** Worth asking again by itself: nobody answered, or the server said that it failed. */
export function isTransient(error: unknown): boolean {
  return error instanceof UnreachableError || (error instanceof ProblemError && error.status >= 500);
}
