"""What Ray says of a cluster, one JSON line for each line of input: a driver in a process of its own.

python -m tests.chaos.ray_eye HOST:PORT
"""

from __future__ import annotations

import json
import sys

from actors import ray_environment, reaper


def main() -> None:
    ray_environment.connect(sys.argv[1], local=True)
    import ray
    from ray._private.state import available_resources_per_node

    for _ in sys.stdin:
        free = available_resources_per_node()  # type: ignore[no-untyped-call]
        every = ray.nodes()  # type: ignore[no-untyped-call]
        nodes = [node for node in every if node["Alive"] and "host" in node["Labels"]]
        answer = {
            "free": {node["Labels"]["host"]: free[node["NodeID"]].get("gpu0", 0.0) for node in nodes},
            "actors": reaper.named_actors(),
            "groups": [group["name"] for group in reaper.placement_groups()],
        }
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
