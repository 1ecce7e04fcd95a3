import { useQuery } from "@tanstack/react-query";
import { isTerminal, goodputQuery, type JobDetail } from "../../api/queries";
import { RepairTimeline } from "../../goodput/RepairTimeline";
import { Waterfall } from "../../goodput/Waterfall";
import { Failure, Loading } from "../../layout/Notice";
import styles from "./job.module.css";

/** Where the job's GPU time went, and what became of each fault. */
export function GoodputPanel({ job }: { job: JobDetail }) {
  const query = useQuery(goodputQuery(job.id, !isTerminal(job.state)));
  const found = query.data;
  if (found === undefined) {
    if (query.failureReason === null) return <Loading label="Adding up GPU time" rows={8} />;
    return <Failure title="Goodput could not be loaded" error={query.failureReason} onRetry={() => void query.refetch()} />;
  }
  return (
    <div className={styles.goodput}>
      <section aria-labelledby="goodput-classes">
        <h3 id="goodput-classes">Where GPU time went</h3>
        <Waterfall ledger={found} label="GPU time by class" />
      </section>
      <section aria-labelledby="goodput-repairs">
        <h3 id="goodput-repairs">Faults and repairs</h3>
        <RepairTimeline repairs={found.repairs} />
      </section>
    </div>
  );
}
