import { Link } from "@tanstack/react-router";
import { Notice } from "./Notice";
import { useTitle } from "./title";

export function NotFound() {
  useTitle("Not found");
  return (
    <Notice title="There is no such page" actions={<Link to="/jobs">All jobs</Link>}>
      The address may be mistyped, or it belongs to another version of Atoll.
    </Notice>
  );
}
