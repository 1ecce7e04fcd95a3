import type { ReactNode } from "react";
import { useId } from "react";
import styles from "./layout.module.css";

interface PanelProps {
  title: string;
  actions?: ReactNode;
  children: ReactNode;
  /** Without padding, for tables. */
  flush?: boolean;
}

/** A titled region of a page. */
export function Panel({ title, actions, children, flush = false }: PanelProps) {
  const id = useId();
  return (
    <section className={styles.panel} aria-labelledby={id}>
      <div className={styles.panelHead}>
        <h2 id={id}>{title}</h2>
        {actions}
      </div>
      <div className={flush ? undefined : styles.panelBody}>{children}</div>
    </section>
  );
}

/** Label and value pairs. */
export function Facts({ items }: { items: readonly (readonly [string, ReactNode])[] }) {
  return (
    <dl className={styles.facts}>
      {items.map(([label, value]) => (
        <div key={label}>
          <dt>{label}</dt>
          <dd>{value}</dd>
        </div>
      ))}
    </dl>
  );
}

/** A table that scrolls inside itself when it is wider than the page; focusable so that keys can scroll it. */
export function Table({ label, head, children }: { label: string; head: ReactNode; children: ReactNode }) {
  return (
    // oxlint-disable-next-line jsx-a11y/no-noninteractive-tabindex -- a scrolling region must take keys (WCAG 2.1.1)
    <div className={styles.tableWrap} role="region" aria-label={label} tabIndex={0}>
      <table className={styles.table}>
        <thead>
          <tr>{head}</tr>
        </thead>
        <tbody>{children}</tbody>
      </table>
    </div>
  );
}
