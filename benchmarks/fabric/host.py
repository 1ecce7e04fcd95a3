"""One node of the emulated cluster, run inside its namespace: holds a raylet (the head: GCS and a raylet too).

    python -m benchmarks.fabric.host HOST JSON

Prints one line of JSON, `{"address": "HOST:PORT"}`, once the node is known to the cluster; lives until it is killed.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time

from actors import ray_environment

START_DEADLINE_S = 120.0
OBJECT_STORE_BYTES = 80 << 20
PATIENCE = {"RAY_health_check_failure_threshold": "100"}
"""Health checks that a node may miss: here one that is silent has waited for a core, not died."""


def main() -> None:
    host, given = sys.argv[1], json.loads(sys.argv[2])
    ray_environment.prepare(local=True)
    os.environ |= PATIENCE
    from actors.local_nodes import LocalNodes  # imports Ray, which reads its settings then

    nodes = LocalNodes(
        deadline=time.monotonic() + START_DEADLINE_S,
        shared={"object_store_memory": OBJECT_STORE_BYTES, "node_ip_address": given["ip"]},
    )
    if given["address"] is None:
        nodes.start_head()
    else:
        nodes.address = given["address"]
        slots = given["slots"]
        nodes.start(
            host,
            num_cpus=slots,
            labels={
                "host": host,
                "island": host,
                "leaf": given["leaf"],
                "spine": "spine",
                "accelerator": "cpu",
            },
            resources={f"gpu{index}": 1 for index in range(slots)} | {"slot": slots},
        )
    print(json.dumps({"address": nodes.address}), flush=True)
    threading.Event().wait()


if __name__ == "__main__":
    main()
