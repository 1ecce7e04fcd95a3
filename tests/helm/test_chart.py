"""The chart: accepted by Helm 3 and 4, every object valid, secure by default, wrong values refused."""

from __future__ import annotations

import base64
import json
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest

from actors import ray_environment
from orchestrator.queue.policy import policy_from_yaml
from orchestrator.recovery.timeouts import CONTROLLER_END_S
from orchestrator.settings import Settings
from tests.helm.conftest import CHART, HELMS, VALUES, Objects

KUBERNETES = ("1.29", "1.34", "1.37")
RAY_CLUSTER = json.loads((Path(__file__).parent / "ray_cluster.schema.json").read_text())
TRIAL, PRODUCTION, EXTERNAL = (
    next(path for path in VALUES if path.stem == name) for name in ("trial", "production", "external-ray")
)

Render = Callable[..., Objects]


def values_id(path: Path) -> str:
    return path.stem


def of_kind(objects: Objects, kind: str) -> Objects:
    return [found for found in objects if found["kind"] == kind]


def pods(objects: Objects) -> Iterator[tuple[str, dict[str, Any]]]:
    """(name, pod spec) of everything that makes pods."""
    for found in objects:
        name = found["metadata"]["name"]
        if found["kind"] in {"Deployment", "StatefulSet"}:
            yield name, found["spec"]["template"]["spec"]
        if found["kind"] == "RayCluster":
            yield "head", found["spec"]["headGroupSpec"]["template"]["spec"]
            for group in found["spec"]["workerGroupSpecs"]:
                yield group["groupName"], group["template"]["spec"]


def environment(container: dict[str, Any]) -> dict[str, Any]:
    return {entry["name"]: entry.get("value", entry.get("valueFrom")) for entry in container["env"]}


@pytest.mark.parametrize("name", HELMS)
@pytest.mark.parametrize("values", VALUES, ids=values_id)
def test_lint(helm: Any, name: str, values: Path) -> None:
    ran = helm(name, "lint", "--strict", str(CHART), "-f", str(values))
    assert ran.returncode == 0, ran.stdout + ran.stderr


@pytest.mark.parametrize("name", HELMS)
@pytest.mark.parametrize("values", VALUES, ids=values_id)
def test_both_helms_render_the_same_kinds(render: Render, name: str, values: Path) -> None:
    objects = render(values, name=name)
    names = [(found["kind"], found["metadata"]["name"]) for found in objects]
    assert len(set(names)) == len(names)
    assert sorted(names) == sorted((f["kind"], f["metadata"]["name"]) for f in render(values, name="helm"))


@pytest.mark.parametrize("version", KUBERNETES)
@pytest.mark.parametrize("values", VALUES, ids=values_id)
def test_every_object_is_valid(render: Render, values: Path, version: str) -> None:
    for found in render(values):
        if found["kind"] != "RayCluster":
            kubernetes_validate.validate(found, version, strict=True)


@pytest.mark.parametrize("values", [v for v in VALUES if v != EXTERNAL], ids=values_id)
def test_ray_cluster_is_valid_down_to_its_pods(render: Render, values: Path) -> None:
    (cluster,) = of_kind(render(values), "RayCluster")
    jsonschema.validate(cluster, RAY_CLUSTER)
    for name, spec in pods([cluster]):
        labels = {"kind": "Pod", "apiVersion": "v1", "metadata": {"name": name}, "spec": spec}
        kubernetes_validate.validate(labels, KUBERNETES[-1], strict=True)


@pytest.mark.parametrize("values", VALUES, ids=values_id)
def test_pods_are_restricted(render: Render, values: Path) -> None:
    for name, spec in pods(render(values)):
        assert spec["automountServiceAccountToken"] is False, name
        assert spec["securityContext"]["runAsNonRoot"] is True, name
        assert spec["securityContext"]["runAsUser"] > 0, name
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}, name
        for container in spec["containers"]:
            context = container["securityContext"]
            assert context["readOnlyRootFilesystem"] is True, name
            assert context["allowPrivilegeEscalation"] is False, name
            assert context["capabilities"] == {"drop": ["ALL"]}, name
            assert container["resources"]["requests"], name
            assert container["resources"]["limits"]["memory"], name
            assert "/tmp" in [mount["mountPath"] for mount in container["volumeMounts"]], name


@pytest.mark.parametrize("values", VALUES, ids=values_id)
def test_what_a_pod_names_is_there(render: Render, values: Path) -> None:
    """Secrets, claims and config maps are made by the chart or named by the values; mounts have volumes."""
    objects = render(values)
    made = {(found["kind"], found["metadata"]["name"]) for found in objects}
    text = values.read_text()
    for name, spec in pods(objects):
        volumes = {volume["name"]: volume for volume in spec["volumes"]}
        for volume in volumes.values():
            for kind, key, field in (
                ("Secret", "secret", "secretName"),
                ("ConfigMap", "configMap", "name"),
                ("PersistentVolumeClaim", "persistentVolumeClaim", "claimName"),
            ):
                if key in volume:
                    assert (kind, volume[key][field]) in made or volume[key][field] in text, name
        claims = {"data"} if name.endswith("postgresql") else set()
        for container in spec["containers"]:
            assert {mount["name"] for mount in container["volumeMounts"]} <= set(volumes) | claims, name
            for value in environment(container).values():
                if isinstance(value, dict) and "secretKeyRef" in value:
                    secret = value["secretKeyRef"]["name"]
                    assert ("Secret", secret) in made or secret in text, name


@pytest.mark.parametrize("values", VALUES, ids=values_id)
def test_selectors_find_their_pods_and_no_others(render: Render, values: Path) -> None:
    objects = render(values)
    labelled = {
        found["metadata"]["name"]: found["spec"]["template"]["metadata"]["labels"]
        for found in objects
        if found["kind"] in {"Deployment", "StatefulSet"}
    }
    for found in objects:
        if found["kind"] in {"Deployment", "StatefulSet"}:
            wanted = found["spec"]["selector"]["matchLabels"]
            hit = [name for name, labels in labelled.items() if wanted.items() <= labels.items()]
            assert hit == [found["metadata"]["name"]]
        if found["kind"] == "Service":
            wanted = found["spec"]["selector"]
            assert len([1 for labels in labelled.values() if wanted.items() <= labels.items()]) == 1


def test_tokens_are_random_and_long(render: Render) -> None:
    first, second = (
        of_kind(render(TRIAL, release=release), "Secret")[0]["data"] for release in ("one", "two")
    )
    tokens = [
        base64.b64decode(secret[key]) for secret in (first, second) for key in ("api-token", "internal-token")
    ]
    assert len(set(tokens)) == 4
    assert all(len(token) >= 32 for token in tokens)


def test_the_bundled_database_has_one_password(render: Render) -> None:
    secret = next(s for s in of_kind(render(TRIAL), "Secret") if "url" in s["data"])
    url, password = (base64.b64decode(secret["data"][key]).decode() for key in ("url", "password"))
    services = {found["metadata"]["name"] for found in of_kind(render(TRIAL), "Service")}
    assert url == f"postgresql://atoll:{password}@{secret['metadata']['name']}:5432/atoll"
    assert secret["metadata"]["name"] in services


def test_environment_is_what_the_settings_read(render: Render) -> None:
    """Every ATOLL_ variable of a pod is a setting; the values are taken by the settings class."""
    from orchestrator.settings import Settings

    for _, spec in pods(render(PRODUCTION)):
        for container in spec["containers"]:
            names = {name for name in environment(container) if name.startswith("ATOLL_")} - {"ATOLL_NODE"}
            assert {name.removeprefix("ATOLL_").lower() for name in names} <= set(Settings.model_fields)


def test_ray_settings_are_those_of_the_program(render: Render) -> None:
    for name, spec in pods(render(TRIAL)):
        if name in {"head", "l0"} or name.endswith("controller"):
            found = environment(spec["containers"][0])
            expected = {**ray_environment.SETTINGS, "RAY_AUTH_MODE": "disabled"}
            assert {key: value for key, value in found.items() if key.startswith("RAY_")} == expected, name


def start_command(render: Render, values: Path, group: str, tmp_path: Path) -> list[str]:
    """What `ray` is really given when the shell has run the group's command."""
    spec = dict(pods(render(values)))[group]
    container = spec["containers"][0]
    fake = tmp_path / "ray"
    fake.write_text('#!/bin/sh\nfor one in "$@"; do echo "$one"; done\n')
    fake.chmod(0o755)
    ran = subprocess.run(
        [*container["command"], *container["args"]],
        env={
            "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}",
            "ATOLL_NODE": "node-7.example.org",
            "KUBERAY_GEN_RAY_START_CMD": 'ray start --address="head:6379"  --block  --num-gpus=8 ',
        },
        capture_output=True,
        text=True,
        check=True,
    )
    return ran.stdout.splitlines()


def test_worker_starts_with_labels_and_unit_resources(render: Render, tmp_path: Path) -> None:
    given = start_command(render, PRODUCTION, "leaf0", tmp_path)
    assert given[:4] == ["start", "--address=head:6379", "--block", "--num-gpus=8"]
    labels = "host=node-7.example.org,island=node-7.example.org,leaf=leaf0,spine=s0,core=c0,accelerator=H100"
    assert given[4] == f"--labels={labels}"
    assert json.loads(given[5].removeprefix("--resources=")) == {f"gpu{index}": 1 for index in range(8)}


def test_island_over_nodes_and_cpu_slots(render: Render, tmp_path: Path) -> None:
    assert "island=rack1," in start_command(render, PRODUCTION, "rack1", tmp_path)[4]
    labels = start_command(render, TRIAL, "l0", tmp_path)[4]
    assert labels.endswith("leaf=l0,accelerator=cpu")
    assert "spine" not in labels


def test_head_starts_with_the_generated_command(render: Render, tmp_path: Path) -> None:
    assert start_command(render, TRIAL, "head", tmp_path) == [
        "start",
        "--address=head:6379",
        "--block",
        "--num-gpus=8",
    ]


def test_gpus_are_asked_for_where_there_are_any(render: Render) -> None:
    spec = dict(pods(render(PRODUCTION)))["leaf0"]["containers"][0]["resources"]
    assert spec["requests"]["nvidia.com/gpu"] == spec["limits"]["nvidia.com/gpu"] == "8"
    assert "nvidia.com/gpu" not in json.dumps(render(TRIAL))


def test_external_ray_makes_no_ray_cluster(render: Render) -> None:
    assert not of_kind(render(EXTERNAL), "RayCluster")
    controller = dict(pods(render(EXTERNAL)))["test-atoll-controller"]["containers"][0]
    assert environment(controller)["ATOLL_RAY_ADDRESS"] == "ray.example.org:6379"


def test_the_controller_is_not_killed_while_it_stops(render: Render) -> None:
    assert (
        dict(pods(render(EXTERNAL)))["test-atoll-controller"]["terminationGracePeriodSeconds"]
        > CONTROLLER_END_S
    )


def test_only_ray_and_the_controller_reach_ray(render: Render) -> None:
    policy = next(
        p for p in of_kind(render(TRIAL), "NetworkPolicy") if p["metadata"]["name"].endswith("-ray")
    )
    sources = policy["spec"]["ingress"][0]["from"]
    peers = [source["podSelector"]["matchLabels"]["app.kubernetes.io/component"] for source in sources]
    assert peers == ["ray", "controller"]


def test_budgets_only_where_a_pod_is_left(render: Render) -> None:
    assert not of_kind(render(TRIAL), "PodDisruptionBudget")
    assert len(of_kind(render(PRODUCTION), "PodDisruptionBudget")) == 2


def test_long_names_fit(render: Render) -> None:
    for found in render(TRIAL, release="r" * 53):
        assert len(found["metadata"]["name"]) <= 63


@pytest.mark.parametrize(("settings", "told"), [((), "true"), (("userCode=false",), "false")])
def test_the_api_is_told_whether_jobs_bring_code(
    render: Render, settings: tuple[str, ...], told: str
) -> None:
    found = dict(pods(render(TRIAL, *settings)))["test-atoll-api"]["containers"][0]
    assert environment(found)["ATOLL_USER_CODE"] == told
    assert Settings(user_code=environment(found)["ATOLL_USER_CODE"]).user_code is (told == "true")


def test_the_queue_policy_reaches_the_controller(render: Render) -> None:
    found = of_kind(render(PRODUCTION), "ConfigMap")
    texts = [one["data"]["policy.yaml"] for one in found if "policy.yaml" in one["data"]]
    assert [policy_from_yaml(text, origin="chart").project("vision").quota for text in texts] == [64]
    controller = dict(pods(render(PRODUCTION)))["test-atoll-controller"]["containers"][0]
    file = Path(environment(controller)["ATOLL_QUEUE_POLICY_FILE"])
    assert file.name == "policy.yaml"
    assert str(file.parent) in [mount["mountPath"] for mount in controller["volumeMounts"]]


def test_the_heads_state_in_a_claim_of_its_own(render: Render) -> None:
    """Ray's embedded RocksDB: the head alone has it, and the Redis that KubeRay knows of is not asked for."""
    objects = render(TRIAL, "ray.head.faultTolerance.rocksdbClaim=gcs-state")
    (cluster,) = of_kind(objects, "RayCluster")
    assert "gcsFaultToleranceOptions" not in cluster["spec"]
    head = cluster["spec"]["headGroupSpec"]["template"]["spec"]
    told = environment(head["containers"][0])
    assert told["RAY_gcs_storage"] == "rocksdb"
    (volume,) = (one for one in head["volumes"] if one["name"] == "gcs")
    assert volume["persistentVolumeClaim"] == {"claimName": "gcs-state"}
    (mount,) = (one for one in head["containers"][0]["volumeMounts"] if one["name"] == "gcs")
    assert told["RAY_gcs_storage_path"].startswith(mount["mountPath"] + "/")
    for group in cluster["spec"]["workerGroupSpecs"]:
        worker = group["template"]["spec"]
        assert "RAY_gcs_storage" not in environment(worker["containers"][0])
        assert "gcs" not in {one["name"] for one in worker["volumes"]}


WRONG = [
    ("nonsense=1", "nonsense"),
    ("api.replica=2", "replica"),
    ("api.replicas=0", "replicas"),
    ("api.replicas=two", "replicas"),
    ("service.port=99999", "port"),
    ("service.type=Magic", "type"),
    ("image.digest=latest", "digest"),
    ("image.pullPolicy=Sometimes", "pullPolicy"),
    ("storage.size=much", "size"),
    ("storage.accessModes[0]=Any", "accessModes"),
    ("ray.address=somewhere", "address"),
    ("ray.version=newest", "version"),
    ("ray.head.faultTolerance.redisAddress=redis", "redisAddress"),
    (
        "ray.head.faultTolerance.redisAddress=r:6379,ray.head.faultTolerance.rocksdbClaim=gcs",
        "two places for one state",
    ),
    ("ray.workerGroups[0].name=l0", "accelerators"),
    ("postgresql.enabled=yes-please", "enabled"),
    ("logJson=1", "logJson"),
    ("userCode=no-thanks", "userCode"),
    ("api.resources.limits.memory=lots", "memory"),
    ("ingress.enabled=true", "ingress.host"),
    ("database.existingSecret=both", "two answers"),
]


@pytest.mark.parametrize("name", HELMS)
@pytest.mark.parametrize(("setting", "told"), WRONG, ids=[setting for setting, _ in WRONG])
def test_wrong_values_are_refused(helm: Any, name: str, setting: str, told: str) -> None:
    ran = helm(name, "template", "x", str(CHART), "--set", "postgresql.enabled=true", "--set", setting)
    assert ran.returncode != 0
    assert told in ran.stderr


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ([], "database"),
        (['database.existingSecret="x"', "ray.workerGroups=[]"], "ray.workerGroups"),
    ],
)
def test_missing_values_are_named(helm: Any, settings: list[str], told: str) -> None:
    ran = helm(
        "helm", "template", "x", str(CHART), *[part for one in settings for part in ("--set-json", one)]
    )
    assert ran.returncode != 0
    assert told in ran.stderr


def test_two_groups_of_one_name_are_refused(helm: Any, tmp_path: Path) -> None:
    text = PRODUCTION.read_text().replace("name: rack1", "name: leaf0")
    path = tmp_path / "values.yaml"
    path.write_text(text)
    ran = helm("helm", "template", "x", str(CHART), "-f", str(path))
    assert "two groups" in ran.stderr


def test_notes_say_how_to_go_on(helm: Any) -> None:
    ran = helm("helm", "install", "x", str(CHART), "-f", str(TRIAL), "--dry-run=client", "-n", "training")
    if ran.returncode != 0 and "unreachable" in ran.stderr:
        pytest.skip("this Helm wants a cluster even for a dry run on the client")
    assert "api-token" in ran.stdout
    assert "port-forward" in ran.stdout
