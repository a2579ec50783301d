"""Changed settings make other cases; their TOML lines make the same cases again."""

from __future__ import annotations

import shutil
import tomllib
from dataclasses import replace
from importlib.metadata import version

import pytest
import tomlkit

from harness.core.case import Device, Target
from harness.plugins.explain import setting_changes
from harness.plugins.explain.setting_changes import changes_of, listed_as, toml_of
from harness.suite.suite import load_suite
from tests.places import DIGITS

SUITE = load_suite(DIGITS)
CASES = {case.id: case for case in SUITE.cases}
SHOWN = (
    "text_encoder/mnn/fused",
    "unet/mnn/deploy",
    "unet/mnn/int4-weights",
    "vae_decoder/mnn/fp32",
    "unet/onnxruntime/fp32",
    "unet/onnxruntime/fp16",
    "unet/onnxruntime/fp32 on a provider",
)
CASES["unet/onnxruntime/fp32 on a provider"] = replace(
    CASES["unet/onnxruntime/fp32"],
    device=Device(
        device="openvino",
        threads=CASES["unet/onnxruntime/fp32"].device.threads,
        provider_options=(("num_streams", 1), ("precision", "FP32")),
        cpu_nodes=0.1,
    ),
)
CHANGES = [
    (case, change, at)
    for case in SHOWN
    for at, change in enumerate(
        one
        for coarse in changes_of(CASES[case], ["sin"])
        for one in (coarse, *coarse.finer[:2])
        if not one.gives_up  # a suite lists that variant already
    )
]


@pytest.mark.parametrize(
    ("case", "change"),
    [pytest.param(case, change, id=f"{case}-{at}") for case, change, at in CHANGES],
)
def test_the_lines_of_a_change_make_the_case_that_it_made(tmp_path, case, change):
    before = CASES[case]
    after = change.apply(before)
    offered = tomllib.loads("\n".join(toml_of(before, change)))
    suite, written = copied(tmp_path)
    device = before.device
    if device.provider_options:
        written["backend"][before.backend] |= {
            "device": device.device,
            "provider_options": dict(device.provider_options),
            "cpu_nodes": device.cpu_nodes,
        }
    merged = merge(written, offered)
    # A component that lists its variants gets this one all the same.
    listed = merged.setdefault("component", {}).setdefault(before.subject, {})
    listed.setdefault("variants", [before.variant.name])
    (suite / "parity.toml").write_text(tomlkit.dumps(merged))

    made = [
        found
        for found in load_suite(suite).cases
        if found.subject == before.subject
        and (found.device, found.export) == (after.device, after.export)
        and (found.variant.kind, found.variant.flags)
        == (after.variant.kind, after.variant.flags)
    ]

    assert made, offered
    assert after != before


def copied(folder):
    suite = folder / "suite"
    left_out = shutil.ignore_patterns("*.safetensors", "worst_inputs.toml")
    shutil.copytree(DIGITS, suite, ignore=left_out)
    written = tomlkit.loads((suite / "parity.toml").read_text())
    del written["pipeline"]  # pipelines name variants that one of its own replaces
    return suite, written


def merge(into, offered):
    for name, value in offered.items():
        if isinstance(value, dict) and name in into and name != "provider_options":
            merge(into[name], value)
        else:
            into[name] = value
    return into


PLACES = """
[target.phone]
command = ["python3"]
[backend.mnn]
targets = ["here", "phone"]
versions = ["3.5.0"]
precision = ["high", "low"]
[backend.onnxruntime]
targets = ["here", "phone"]
versions = ["1.20.1"]
[component.vae_decoder]
variants = ["fp32", "fp32@low", "fp32@phone", "fp32@phone-low", "fp32@3.5.0",
            "fp32@3.5.0-low", "fp32@1.20.1", "fp16@phone", "fp16"]
"""


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    """A suite whose cases run in several places and precisions."""
    suite, written = copied(tmp_path_factory.mktemp("places"))
    merge(written, tomllib.loads(PLACES))
    (suite / "parity.toml").write_text(tomlkit.dumps(written))
    return suite, {case.id: case for case in load_suite(suite).cases}


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        "mnn/fp32@low",
        "mnn/fp32@phone",
        "mnn/fp32@phone-low",
        "mnn/fp32@3.5.0-low",
        "onnxruntime/fp32@1.20.1",
        "onnxruntime/fp16@phone",
    ],
)
def test_lines_that_are_offered_load_and_other_cases_stay(places, tmp_path, name):
    folder, cases = places
    case = cases[f"vae_decoder/{name}"]
    offered = list(changes_of(case, ["sin"]))
    assert {"target", "precision"} & {key for one in offered for key in one.fields}

    for change in offered:
        lines = "\n".join(toml_of(case, change))
        written = tomlkit.loads((folder / "parity.toml").read_text())
        merge(written, tomllib.loads(lines))
        suite = shutil.copytree(folder, tmp_path / "suite", dirs_exist_ok=True)
        (suite / "parity.toml").write_text(tomlkit.dumps(written))

        loaded = {one.id for one in load_suite(suite).cases}
        assert cases.keys() <= loaded, lines
        assert lines or listed_as(case, change) in loaded, change.name


def test_one_precision_for_all_cases_is_changed_by_a_line():
    case = CASES["vae_decoder/mnn/fp32"]
    low = replace(case, device=replace(case.device, precision="low"))
    (change,) = [one for one in changes_of(low, []) if "precision" in one.fields]
    assert list(toml_of(low, change)) == ["[backend.mnn]", 'precision = "high"']


PHONE, OLD = Target(name="phone", command=("ssh",)), Target(name="1.2", version="1.2")


@pytest.mark.parametrize(
    ("case", "device", "causes"),
    [
        pytest.param("mnn", {"precision": "low"}, ["precision low"], id="low here"),
        pytest.param(
            "mnn", {"target": PHONE}, ["right here, wrong on phone"], id="target"
        ),
        pytest.param(
            "mnn",
            {"target": PHONE, "precision": "low"},
            [
                "right in float32 arithmetic, wrong in phone's float16",
                "right here, wrong on phone",
            ],
            id="low on a target",
        ),
        pytest.param(
            "onnxruntime",
            {"target": PHONE},
            ["right here, wrong on phone"],
            id="no low",
        ),
        pytest.param(
            "mnn",
            {"target": OLD},
            [f"right in version {version('MNN')}, wrong in 1.2"],
            id="version",
        ),
    ],
)
def test_the_place_and_the_precision_are_settings(case, device, causes):
    at = CASES[f"vae_decoder/{case}/fp32"]
    moved = replace(at, device=replace(at.device, **device))

    changed = [
        change
        for change in changes_of(moved, [])
        if {"target", "precision"} & change.fields.keys()
    ]

    assert [change.cause for change in changed] == causes
    assert changed[-1].apply(moved).device == at.device


def test_a_place_is_not_changed_for_one_that_lacks_the_runtime(monkeypatch):
    at = CASES["vae_decoder/mnn/fp32"]
    monkeypatch.setattr(setting_changes, "version_of", lambda _: "")
    offered = changes_of(replace(at, device=replace(at.device, target=OLD)), [])
    assert not any("target" in change.fields for change in offered)


def test_a_providers_options_are_left_out_one_by_one_and_then_the_provider():
    offered = changes_of(CASES["unet/onnxruntime/fp32 on a provider"], [])
    names = [change.name for change in offered]
    assert {"without num_streams = 1", 'without precision = "FP32"'} <= set(names)
    assert 'device = "cpu"' in names


def test_a_setting_that_is_changed_already_is_not_offered():
    case = CASES["vae_decoder/mnn/fp32"]
    first = next(changes_of(case, []))
    names = [change.name for change in changes_of(first.apply(case), [])]
    assert first.name not in names


def test_float16_keeps_what_it_would_lose_before_it_is_given_up():
    case = CASES["unet/onnxruntime/fp16"]
    offered = list(changes_of(case, ["sin"], ["mul_9", "sin"]))
    assert offered[0].name == "--keep=mul_9,sin"
    assert offered[0].apply(case).variant.flags == ("--keep=mul_9,sin",)
    assert offered[0].wide, "an excerpt around one value does not show the others"
    assert [change.name for change in offered if change.gives_up] == ["fp32 for fp16"]
    exact = changes_of(CASES["unet/onnxruntime/fp32"], [], ["mul_9"])
    assert not any("--keep" in change.name for change in exact)


def test_each_runtime_is_offered_its_own_settings():
    mnn = {change.name for change in changes_of(CASES["unet/mnn/deploy"], [])}
    ort = {change.name for change in changes_of(CASES["unet/onnxruntime/fp32"], [])}
    assert "--useGeluApproximation=0" in mnn
    assert "winograd_memory_level = 0" in mnn
    assert "optimization = 0" in ort
    assert not any(name.startswith("--") for name in ort)


def test_each_flag_of_a_variant_of_ones_own_may_be_left_out():
    case = CASES["text_encoder/mnn/fp32"]
    flags = ("--transformerFuse", "--optimizePrefer=1")
    own = replace(case, variant=replace(case.variant, name="opt", flags=flags))

    left_out = {
        change.name: change
        for change in changes_of(own, [])
        if change.name.startswith("without ")
    }

    assert list(left_out) == [f"without {flag}" for flag in flags]
    change = left_out["without --transformerFuse"]
    assert change.cause == "the flag --transformerFuse of the variant opt"
    assert change.apply(own).variant.flags == ("--optimizePrefer=1",)


def test_without_its_only_flag_a_variant_is_the_built_in_one():
    case = CASES["text_encoder/mnn/fp32"]
    flags = ("--transformerFuse",)
    own = replace(case, variant=replace(case.variant, name="opt", flags=flags))
    (change,) = [one for one in changes_of(own, []) if "transformerFuse" in one.name]
    assert listed_as(own, change) == case.id
    assert list(toml_of(own, change)) == []


def test_a_value_that_is_kept_exact_is_not_left_out():
    case = CASES["unet/onnxruntime/fp16"]
    own = replace(case, variant=replace(case.variant, flags=("--keep=sin",)))
    assert not any("without" in change.name for change in changes_of(own, []))
