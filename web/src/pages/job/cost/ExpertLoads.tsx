import { percent, plural } from "../../../format/numbers";
import { Notice } from "../../../layout/Notice";
import { type ExpertLoads as Loads, imbalance, type LayerLoad } from "./cost";
import styles from "./cost.module.css";

const HEIGHT = 36;

/** What every expert was given in the newest step that told, layer by layer. */
export function ExpertLoads({ loads, hasExperts }: { loads: Loads | null; hasExperts: boolean }) {
  if (!hasExperts) return <Notice title="No experts">The model of this job has none.</Notice>;
  if (loads === null) {
    return <Notice title="No loads yet">They are told in one step of many, at most a hundred times a job.</Notice>;
  }
  const { step, layers, layersWithExperts } = loads;
  const hidden = layersWithExperts - layers.length;
  return (
    <>
      <p className="dim">
        Assignments in step {step}; the line is the even share, the top part was dropped.
        {hidden > 0 && ` ${plural(hidden, "layer")} between are not shown.`}
      </p>
      <ul className={styles.layers}>
        {layers.map((load) => (
          <li key={load.layer}>
            <LayerBars load={load} />
          </li>
        ))}
      </ul>
    </>
  );
}

function LayerBars({ load }: { load: LayerLoad }) {
  const { layer, assigned, dropped } = load;
  const { fullest, dropped: share } = imbalance(load);
  const most = assigned.reduce((a, b) => Math.max(a, b), 1);
  const even = assigned.reduce((a, b) => a + b, 0) / assigned.length;
  const y = (value: number) => HEIGHT * (1 - value / most);
  const words = `fullest ${fullest.toFixed(2)}× its share, ${percent(share, 1)} dropped`;
  return (
    <figure className={styles.layer}>
      <figcaption>
        Layer {layer} <span className="dim">{words}</span>
      </figcaption>
      <svg
        viewBox={`0 0 ${assigned.length} ${HEIGHT}`}
        preserveAspectRatio="none"
        role="img"
        aria-label={`Layer ${layer}, ${plural(assigned.length, "expert")}: ${words}`}
      >
        {assigned.map((value, expert) => (
          // oxlint-disable-next-line react/no-array-index-key -- an expert is its number
          <g key={expert}>
            <title>{`expert ${expert}: ${value} assigned, ${dropped[expert] ?? 0} dropped`}</title>
            <rect className={styles.assigned} x={expert + 0.1} width={0.8} y={y(value)} height={HEIGHT - y(value)} />
            <rect
              className={styles.dropped}
              x={expert + 0.1}
              width={0.8}
              y={y(value)}
              height={HEIGHT - y(dropped[expert] ?? 0)}
            />
          </g>
        ))}
        <line className={styles.even} x1={0} x2={assigned.length} y1={y(even)} y2={y(even)} />
      </svg>
    </figure>
  );
}
