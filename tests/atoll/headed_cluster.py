"""A Ray cluster of one leaf with two nodes of one slot, whose head a test kills and brings back.

    python headed_cluster.py

Commands are lines on standard input: `kill` ends the head (GCS), `back` starts it at the same port with what it has
stored, `anew` ends the head's raylet too and starts a head that knows nothing, then the nodes once their old raylets
have ended. Each is answered by a line of JSON. Where the head keeps its state is said by Ray's own variables in the
environment (docs/operations/head.md). The end of the input ends everything.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from actors import janitor, ray_environment
from actors.local_cluster import ADDRESS, MARKER, OBJECT_STORE_BYTES

START_S = 180.0
HOSTS = ("l0n0", "l0n1")


def main() -> None:
    temporary = Path(tempfile.mkdtemp(prefix="head-", dir="/tmp"))  # short: socket paths end at 107 bytes
    os.environ |= {MARKER: str(temporary), "RAY_TMPDIR": str(temporary), "TMPDIR": str(temporary)}
    watch = janitor.start(f"{MARKER}={temporary}", temporary)
    ray_environment.prepare(local=True)
    try:
        serve()
    finally:
        janitor.sweep(f"{MARKER}={temporary}", temporary)
        shutil.rmtree(temporary, ignore_errors=True)
        watch.release()


def serve() -> None:
    from ray._private import ray_constants

    from actors.local_nodes import LocalNodes

    def fresh() -> LocalNodes:
        shared = {"object_store_memory": OBJECT_STORE_BYTES, "node_ip_address": ADDRESS}
        return LocalNodes(deadline=time.monotonic() + START_S, shared=shared)

    nodes = fresh()
    head = nodes.start_head()
    raylets = start_hosts(nodes)
    say(address=nodes.address, raylets=raylets)
    for line in sys.stdin:
        match line.strip():
            case "kill":
                head.kill_gcs_server()
            case "back":
                head.start_gcs_server()
            case "anew":
                head.kill_gcs_server(check_alive=False)
                head._kill_process_type(ray_constants.PROCESS_TYPE_RAYLET, check_alive=False)
                port = int(nodes.address.rpartition(":")[2])
                old, nodes = raylets, fresh()
                head = nodes.start_head(gcs_server_port=port)
                say(address=nodes.address)
                while any(alive(pid) for pid in old.values()):
                    time.sleep(0.1)
                nodes.deadline = time.monotonic() + START_S
                raylets = start_hosts(nodes)
        say(address=nodes.address, raylets=raylets)


def start_hosts(nodes: Any) -> dict[str, int]:
    return {
        host: nodes.start(
            host,
            num_cpus=1,
            labels={"host": host, "leaf": "l0", "island": host, "accelerator": "cpu"},
            resources={"gpu0": 1},
        )
        for host in HOSTS
    }


def alive(pid: int) -> bool:
    janitor.reap_children()
    return Path(f"/proc/{pid}").exists()


def say(**what: Any) -> None:
    print(json.dumps(what), flush=True)


if __name__ == "__main__":
    main()
    os._exit(0)  # Ray's exit handlers would wait for processes that are gone already
