import { Link, Outlet, useLocation } from "@tanstack/react-router";
import { useEffect, useRef } from "react";
import { ConnectionBanner } from "./ConnectionBanner";
import styles from "./layout.module.css";
import { SchemeSwitch } from "./SchemeSwitch";
import { TokenDialog } from "./TokenDialog";

/** Frame of every page: skip link, navigation, banner, content. */
export function Shell() {
  const main = useFocusOnNavigation();
  return (
    <>
      <a href="#content" className={styles.skip}>
        Skip to content
      </a>
      <header className={styles.bar}>
        <Link to="/jobs" className={styles.brand} aria-label="Atoll, jobs">
          <svg width="24" height="24" viewBox="0 0 32 32" aria-hidden="true" fill="none">
            <circle cx="16" cy="16" r="11" stroke="var(--accent)" strokeWidth="4" strokeDasharray="13 4.28" />
            <circle cx="16" cy="16" r="3.5" fill="var(--accent)" />
          </svg>
          <span className={styles.brandName}>Atoll</span>
        </Link>
        <nav className={styles.nav} aria-label="Main">
          <Link to="/jobs" className={styles.navLink}>
            Jobs
          </Link>
          <Link to="/queue" className={styles.navLink}>
            Queue
          </Link>
          <Link to="/cluster" className={styles.navLink}>
            Cluster
          </Link>
          <Link to="/plan" className={styles.navLink}>
            Plan
          </Link>
          <Link to="/submit" className={styles.navLink}>
            Submit
          </Link>
        </nav>
        <SchemeSwitch />
      </header>
      <ConnectionBanner />
      <main id="content" ref={main} tabIndex={-1} className={styles.main}>
        <Outlet />
      </main>
      <TokenDialog />
    </>
  );
}

/** Moves the focus to the content when another page is shown, as a page load would; not on the first. */
function useFocusOnNavigation() {
  const main = useRef<HTMLElement>(null);
  const { pathname } = useLocation();
  const shown = useRef(pathname);
  useEffect(() => {
    if (shown.current === pathname) return;
    shown.current = pathname;
    main.current?.focus({ preventScroll: true });
  }, [pathname]);
  return main;
}
