import type { ProjectView } from "../../api/queries";
import { count, plural, share } from "../../format/numbers";
import { Table } from "../../layout/Panel";
import styles from "./queue.module.css";

/** What each project may hold, holds, has held lately and waits for. */
export function ProjectTable({ projects }: { projects: ProjectView[] }) {
  return (
    <Table
      label="Projects"
      head={
        <>
          <th scope="col">Project</th>
          <th scope="col">Holds, of its quota</th>
          <th scope="col" className="number">
            Held lately
          </th>
          <th scope="col" className="number">
            Weight
          </th>
          <th scope="col" className="number" title="(held + held lately) / weight; the smaller one goes first">
            Share
          </th>
          <th scope="col" className="number">
            Waiting
          </th>
        </>
      }
    >
      {projects.map((project) => (
        <tr key={project.name}>
          <td>
            <strong>{project.name}</strong>
          </td>
          <td className={styles.quota}>
            <Quota held={project.held} quota={project.quota} project={project.name} />
          </td>
          <td className="number">{share(project.use)}</td>
          <td className="number">{share(project.weight)}</td>
          <td className="number">{share(project.share)}</td>
          <td className="number">
            {project.waiting_jobs === 0 ? (
              <span className="dim">–</span>
            ) : (
              <>
                {plural(project.wanted, "slot")} <span className="dim">in {plural(project.waiting_jobs, "job")}</span>
              </>
            )}
          </td>
        </tr>
      ))}
    </Table>
  );
}

function Quota({ held, quota, project }: { held: number; quota: number | null; project: string }) {
  if (quota === null) return <span>{count(held)}, no quota</span>;
  const part = quota > 0 ? Math.min(100, (100 * held) / quota) : held > 0 ? 100 : 0;
  return (
    <>
      {count(held)} of {count(quota)}
      <div
        className={styles.track}
        role="meter"
        aria-label={`Quota of ${project}`}
        aria-valuemin={0}
        aria-valuemax={quota}
        aria-valuenow={Math.min(held, quota)}
        aria-valuetext={`${count(held)} of ${count(quota)} slots`}
      >
        <div className={styles.fill} data-full={held >= quota || undefined} style={{ width: `${part}%` }} />
      </div>
    </>
  );
}
