import { useEffect } from "react";

/** Names the document: `demo · running · Atoll`. */
export function useTitle(...parts: (string | undefined)[]): void {
  const title = [...parts.filter(Boolean), "Atoll"].join(" · ");
  useEffect(() => {
    document.title = title;
  }, [title]);
}
