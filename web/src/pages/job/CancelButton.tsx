import { Button, Modal } from "@mantine/core";
import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { sentence } from "../../api/problem";
import { cancelJob, type JobDetail } from "../../api/queries";
import { count } from "../../format/numbers";
import styles from "./job.module.css";

export function CancelButton({ job }: { job: JobDetail }) {
  const [asking, setAsking] = useState(false);
  const queries = useQueryClient();
  const cancel = useMutation({
    mutationFn: () => cancelJob(job.id),
    onSuccess: async () => {
      setAsking(false);
      await queries.invalidateQueries({ queryKey: ["job", job.id] });
    },
  });
  if (job.cancel_requested || job.state === "stopping") return <span className="dim">Cancel requested</span>;
  return (
    <>
      <Button variant="default" size="xs" onClick={() => setAsking(true)}>
        Cancel job
      </Button>
      <Modal opened={asking} onClose={() => setAsking(false)} title={`Cancel ${job.name}?`} centered closeButtonProps={{ "aria-label": "Close" }}>
        <p>
          Its ranks end at once, at step {count(job.step)} of {count(job.total_steps)}. Checkpoints already committed
          stay; a cancelled job cannot be continued.
        </p>
        {cancel.isError && (
          <p role="alert" className={styles.error}>
            {sentence(cancel.error)}
          </p>
        )}
        <div className={styles.dialogActions}>
          <Button variant="default" onClick={() => setAsking(false)} data-autofocus>
            Keep it running
          </Button>
          <Button color="red.9" loading={cancel.isPending} onClick={() => cancel.mutate()}>
            Cancel the job
          </Button>
        </div>
      </Modal>
    </>
  );
}
