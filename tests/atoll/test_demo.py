"""What a control plane that is started for a demo or a benchmark takes from its surroundings."""

from __future__ import annotations

from pathlib import Path

import pytest

from actors.local_cluster import RUNTIME_ENVIRONMENTS
from atoll.demo import server_environment


def test_settings_of_another_control_plane_stay_outside(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    foreign = ("ATOLL_PORT", "ATOLL_TOKEN", "RAY_ADDRESS", "DATABASE_URL")
    for name in (*foreign, RUNTIME_ENVIRONMENTS, "GLOO_SOCKET_IFNAME"):
        monkeypatch.setenv(name, "1")
    found = server_environment(tmp_path)
    assert not found.keys() & set(foreign)
    assert (found[RUNTIME_ENVIRONMENTS], found["GLOO_SOCKET_IFNAME"]) == ("1", "1")
