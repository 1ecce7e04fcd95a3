import { authorizedFetch } from "../../api/client";
import { errorFor } from "../../api/problem";
import type { JobDetail } from "../../api/queries";

/** Saves one rank's whole log. By `fetch`, because a plain link cannot carry the token. */
export async function downloadLog(job: JobDetail, rank: number, attempt: number | undefined): Promise<void> {
  const url = new URL(`/api/v1/jobs/${job.id}/logs/download`, globalThis.location.origin);
  url.searchParams.set("rank", String(rank));
  if (attempt !== undefined) url.searchParams.set("attempt", String(attempt));
  const response = await authorizedFetch(new Request(url));
  if (!response.ok) throw errorFor(response.status, await response.json().catch(() => null));
  const address = URL.createObjectURL(await response.blob());
  const link = document.createElement("a");
  link.href = address;
  link.download = `${job.name}-attempt${attempt ?? "newest"}-rank${rank}.log`;
  link.click();
  URL.revokeObjectURL(address);
}
