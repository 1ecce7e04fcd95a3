import { Button, TextInput, UnstyledButton, useComputedColorScheme } from "@mantine/core";
import { useMediaQuery } from "@mantine/hooks";
import { useNavigate } from "@tanstack/react-router";
import { type KeyboardEvent, type ReactNode, useDeferredValue, useMemo, useRef, useState } from "react";
import type { NodeView } from "../api/queries";
import { count, plural } from "../format/numbers";
import { Panel } from "../layout/Panel";
import { jobColors } from "../theme/color";
import { Contents } from "./Contents";
import { Detail } from "./Detail";
import { type CanvasHandle, FabricCanvas } from "./FabricCanvas";
import styles from "./fabric.module.css";
import { layOut } from "./layout";
import { Legend } from "./Legend";
import { type Occupancy, occupancyOf } from "./occupancy";
import { type Domain, growTree, pathTo, shapeOf, titleOf, type Tree } from "./tree";

interface FabricExplorerProps {
  nodes: NodeView[];
  problems: string[];
  /** Id of the domain that is shown; unknown or absent: the whole fabric. */
  at: string | undefined;
  onAt: (id: string | undefined) => void;
  /** Shown below, for the nodes inside the domain that is shown. */
  children: (nodes: NodeView[], domain: string) => ReactNode;
}

/** Width / height of the drawing: wide screens and phones. */
const WIDE = 2.1;
const NARROW = 0.9;
/** Nodes found that are named and marked; more are counted. */
const NAMED = 8;
const MARKED = 500;

/** The whole fabric from core to slot, coloured by job: drawn on a canvas to zoom into, and in words below it. */
export function FabricExplorer({ nodes, problems, at: wanted, onAt, children }: FabricExplorerProps) {
  const navigate = useNavigate();
  const canvas = useRef<CanvasHandle>(null);
  const scheme = useComputedColorScheme("light");
  const { tree, occupancy } = useFabric(nodes);
  const [cursorId, setCursor] = useState<string | null>(null);
  const [jobId, setJob] = useState<string | null>(null);
  const [search, setSearch] = useState("");
  const found = useFound(tree, search);

  const at = tree.byId.get(wanted ?? "") ?? tree.root;
  const cursor = tree.byId.get(cursorId ?? "") ?? null;
  const colors = useMemo(() => jobColors(occupancy.holders.length, scheme), [occupancy.holders.length, scheme]);
  const chosen = occupancy.holders.findIndex((holder) => holder.jobId === jobId);
  const look = useMemo(() => ({ occupancy, highlight: chosen < 0 ? null : chosen }), [occupancy, chosen]);

  const inside = occupancy.views.slice(at.firstNode, at.endNode).filter((view) => view !== undefined);

  const enter = (domain: Domain) => {
    onAt(domain.tier === "fabric" ? undefined : domain.id);
    setCursor(domain.children[0]?.id ?? null);
    if (domain.id === at.id) canvas.current?.show(domain);
  };
  const open = (domain: Domain) => {
    if (domain.tier !== "slot") return enter(domain);
    const holder = occupancy.holders[occupancy.holder[domain.first] ?? -1];
    if (holder !== undefined) void navigate({ to: "/jobs/$jobId", params: { jobId: holder.jobId } });
  };
  const leave = () => {
    if (at.parent === null) return canvas.current?.show(at);
    onAt(at.parent.tier === "fabric" ? undefined : at.parent.id);
    setCursor(at.id);
  };

  return (
    <>
      <Panel
        title="Fabric"
        actions={<Search value={search} onChange={setSearch} onEnter={() => found[0] !== undefined && enter(found[0])} />}
      >
        {search.trim() !== "" && <Found found={found} onEnter={enter} />}
        <div className={styles.bar}>
          <Path at={at} onEnter={enter} />
          <div className={styles.buttons} role="group" aria-label="Zoom">
            <Button size="compact-xs" variant="default" aria-label="Zoom out" onClick={() => canvas.current?.zoom(1 / 1.6)}>
              −
            </Button>
            <Button size="compact-xs" variant="default" aria-label="Zoom in" onClick={() => canvas.current?.zoom(1.6)}>
              +
            </Button>
            <Button size="compact-xs" variant="default" onClick={() => enter(tree.root)}>
              Whole fabric
            </Button>
          </div>
        </div>
        <FabricCanvas
          ref={canvas}
          tree={tree}
          look={look}
          colors={colors}
          at={at}
          cursor={cursor}
          onCursor={(domain) => setCursor(domain?.id ?? null)}
          onOpen={open}
          onLeave={leave}
          found={found}
        />
        <Legend occupancy={occupancy} colors={colors} chosen={jobId} onChoose={setJob} />
        <Detail domain={cursor} tree={tree} occupancy={occupancy} problems={problems} />
      </Panel>
      <Contents key={at.id} domain={at} occupancy={occupancy} onEnter={enter} />
      {children(inside, at.tier === "fabric" ? "the fabric" : titleOf(at))}
    </>
  );
}

/** The tree and its drawing are kept while nodes come and go in state alone. */
function useFabric(nodes: NodeView[]): { tree: Tree; occupancy: Occupancy } {
  const aspect = useMediaQuery("(max-width: 640px)") ? NARROW : WIDE;
  const shape = useMemo(() => shapeOf(nodes), [nodes]);
  // oxlint-disable-next-line react-hooks/exhaustive-deps -- all that the tree reads of the nodes is in their shape
  const tree = useMemo(() => layOut(growTree(nodes), aspect), [shape, aspect]);
  const occupancy = useMemo(() => occupancyOf(tree, nodes), [tree, nodes]);
  return { tree, occupancy };
}

function useFound(tree: Tree, search: string): Domain[] {
  const wanted = useDeferredValue(search.trim().toLowerCase());
  return useMemo(
    () => (wanted === "" ? [] : tree.nodes.filter(({ name }) => name?.toLowerCase().includes(wanted))).slice(0, MARKED),
    [tree, wanted],
  );
}

function Search({ value, onChange, onEnter }: { value: string; onChange: (value: string) => void; onEnter: () => void }) {
  const onKeyDown = (event: KeyboardEvent) => {
    if (event.key === "Enter") onEnter();
    if (event.key === "Escape") onChange("");
  };
  return (
    <TextInput
      size="xs"
      type="search"
      aria-label="Find a node by its name"
      placeholder="Find a node"
      value={value}
      onChange={(event) => onChange(event.currentTarget.value)}
      onKeyDown={onKeyDown}
    />
  );
}

function Found({ found, onEnter }: { found: Domain[]; onEnter: (domain: Domain) => void }) {
  const more = found.length - NAMED;
  return (
    <div className={styles.found} role="status">
      {found.length === 0 ? "No node has this in its name." : `${found.length === MARKED ? "At least " : ""}${plural(found.length, "node")}:`}
      {found.slice(0, NAMED).map((node) => (
        <UnstyledButton key={node.id} className={styles.link} fz="inherit" onClick={() => onEnter(node)}>
          {node.name}
        </UnstyledButton>
      ))}
      {more > 0 && <span className="dim">and {count(more)} more, framed in the drawing</span>}
    </div>
  );
}

function Path({ at, onEnter }: { at: Domain; onEnter: (domain: Domain) => void }) {
  return (
    <nav aria-label="Place in the fabric">
      <ol className={styles.path}>
        {pathTo(at).map((domain) => (
          <li key={domain.id}>
            {domain === at ? (
              <strong aria-current="location">{titleOf(domain)}</strong>
            ) : (
              <UnstyledButton className={styles.link} fz="inherit" onClick={() => onEnter(domain)}>
                {titleOf(domain)}
              </UnstyledButton>
            )}
          </li>
        ))}
      </ol>
    </nav>
  );
}
