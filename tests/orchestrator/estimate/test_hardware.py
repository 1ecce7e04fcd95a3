"""The data file: nothing without a source, names as drivers and labels write them."""

from __future__ import annotations

from importlib import resources
from typing import Any

import pytest
import yaml

from orchestrator.estimate.hardware import accelerator_named, accelerators, link_classes


def document() -> dict[str, Any]:
    text = (resources.files("orchestrator.estimate") / "hardware.yaml").read_text(encoding="utf-8")
    found: dict[str, Any] = yaml.safe_load(text)
    return found


def test_every_number_has_a_source() -> None:
    found = document()
    for name, entry in (found["accelerators"] | found["links"]).items():
        assert len(entry["source"]) > 20, name
    for name, family in found["kernels"].items():
        sourced = {
            "product_source",
            "power_source",
            "stream_source",
            "launch_source",
            "flash_source",
            "comm_source",
        }
        assert sourced <= set(family), name
        assert all(len(family[key]) > 5 for key in sourced), name


def test_every_name_leads_somewhere() -> None:
    links = link_classes()
    for device in accelerators().values():
        assert device.island in links
        assert device.network in links
        assert accelerator_named(device.name) is device


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("A100", "A100-SXM-80GB"),
        ("NVIDIA A100-SXM4-40GB", "A100-SXM-40GB"),
        ("NVIDIA A100 80GB PCIe", "A100-PCIE-80GB"),
        ("NVIDIA H100 80GB HBM3", "H100-SXM"),
        ("NVIDIA H100 PCIe", "H100-PCIE"),
        ("NVIDIA H200", "H200-SXM"),
        ("NVIDIA B200", "B200-SXM"),
        ("NVIDIA GB200", "GB200"),
        ("AMD Instinct MI300X", "MI300X"),
        ("cpu", "cpu"),
    ],
)
def test_names_of_drivers_and_labels(given: str, meant: str) -> None:
    found = accelerator_named(given)
    assert found is not None
    assert found.name == meant


def test_unknown_names_are_unknown() -> None:
    assert accelerator_named(None) is None
    assert accelerator_named("TPU v5p") is None


def test_data_sheets() -> None:
    """A100 80 GB: 312 TFLOP/s, 2,039 GB/s, 600 GB/s of NVLink both ways; HDR: 200 Gbit/s."""
    device = accelerators()["A100-SXM-80GB"]
    assert device.peak["bf16"] == pytest.approx(312e12)
    assert device.bandwidth == pytest.approx(2.039e12)
    assert device.memory_bytes == 80 * 2**30
    links = link_classes()
    assert links[device.island].bandwidth / links[device.island].achieved == pytest.approx(300e9)
    assert links[device.network].bandwidth / links[device.network].achieved == pytest.approx(25e9)


def test_a_power_limit_lowers_what_products_get() -> None:
    full, limited = accelerators()["H100-SXM"], accelerators()["H100-SXM-96GB-500W"]
    ratio = limited.sustained_flops("bf16") / full.sustained_flops("bf16")
    assert ratio == pytest.approx((500 / 700) ** 0.92)
