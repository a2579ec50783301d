"""`parity explain` of a case in a browser, with a fault in one shader of WebGPU."""

from __future__ import annotations

import tomllib
from contextlib import closing
from dataclasses import replace

import onnx
import pytest
import tomlkit

from harness.core.case import Device, Target
from harness.core.record import LAYERS
from harness.core.settings import Settings
from harness.engine.engine import Engine
from harness.engine.store import Store
from harness.plugins.browser import targets
from harness.plugins.browser.driving import Browser
from harness.plugins.explain.excerpts import blamed_nodes
from harness.plugins.explain.explain import explain
from harness.plugins.explain.screen import explanation_lines
from harness.plugins.explain.setting_changes import changes_of, listed_as, toml_of
from harness.runtimes.onnxruntime.providers import CPU, FORCED, Placement
from harness.runtimes.onnxruntime.session import OpenedSession
from harness.suite.judge import Judge
from harness.suite.suite import load_suite
from tests.plugins.explain.test_setting_changes import merge

pytestmark = pytest.mark.browser

WEBGPU = "net/onnxruntime/fp32@browser-webgpu"
WASM = "net/onnxruntime/fp32@browser-wasm"
WASM_FILE = "ort-wasm-simd-threaded.asyncify.wasm"
RIGHT, WRONG = b"const r1 = 0.254829592;", b"const r1 = 0.354829592;"
CONVOLUTION = """
<ir_version: 8, opset_import: ["" : 18]>
net (float[1, 1, 4, 4] x) => (float[1, 1, 4, 4] y)
<float[1, 1, 1, 1] w = {2.0}> { h = Conv(x, w) y = Relu(h) }
"""


@pytest.fixture(scope="module")
def faulty(package, tmp_path_factory):
    """The package with another number in WebGPU's shader of Erf."""
    folder = tmp_path_factory.mktemp("package")
    (folder / "package.json").symlink_to(package.dist.parent / "package.json")
    (folder / "dist").mkdir()
    for path in package.dist.iterdir():
        if path.name != WASM_FILE:
            (folder / "dist" / path.name).symlink_to(path)
    shaders = (package.dist / WASM_FILE).read_bytes()
    assert RIGHT in shaders
    (folder / "dist" / WASM_FILE).write_bytes(shaders.replace(RIGHT, WRONG))
    return folder


def case_of(project, name=WEBGPU):
    suite = load_suite(project.path)
    (case,) = [one for one in suite.cases if one.id == name]
    return suite, case


@pytest.fixture
def planted(project, package, faulty, store, tmp_path):
    """An engine, and the judge and the case of a suite that has the faulty shader."""
    own = project.branch(tmp_path / "own")
    own.change("parity.toml", str(package.dist.parent), str(faulty))
    suite, case = case_of(own)
    with Engine(Store(root=store), suite.limits) as engine:
        yield engine, Judge.of(suite, Settings()), case


def test_a_shaders_fault_is_kept_off_by_an_option_of_the_target(planted):
    engine, judge, case = planted
    first = judge.check(engine.run(case), LAYERS).first
    assert first.row.probe == "erf"
    nodes = blamed_nodes(engine, case, case.samples[0], [first.row.probe])
    assert len(nodes) == 1
    (kept,) = [one for one in targets.changes(case, nodes) if FORCED in one.name]

    record = engine.run(kept.apply(case))

    assert [*toml_of(case, kept)] == [
        "[target.browser]",
        f'provider_options = {{ {FORCED} = "{nodes[0]}" }}',
    ]
    for what in case.whats:
        verdict = judge.check(record, what)
        assert verdict.found.passed, verdict.reason


def test_explain_proposes_the_option_that_costs_least(planted):
    engine, judge, case = planted
    found = explain(engine, judge, case, lambda _: None)
    said = [line.text.strip() for line in explanation_lines(found)]

    names = [trial.change.name.partition(" ")[0] for trial in found.fixing]
    assert names == [FORCED, "device", "targets"]
    assert any(f"ship {WASM} in its place" in line for line in said)
    assert said[-2] == "parity.toml   [target.browser]"


def test_the_lines_of_a_change_make_the_case_that_it_made(project, tmp_path):
    suite, case = case_of(project)
    options = (("preferredLayout", "NCHW"),)
    device = replace(case.device, provider_options=options, cpu_nodes=0.1)
    changed = replace(case, device=device)
    offered = [
        one
        for one in changes_of(changed, [], (), ["node_erf", "node_conv2d"])
        if one.part == "device"
    ]
    names = [one.name for one in offered]
    assert {
        'preferredLayout = "NHWC"',
        'forceCpuNodeNames = "node_erf\\nnode_conv2d"',
        'device = "wasm"',
        'targets = ["here"]',
        'without preferredLayout = "NCHW"',
    } <= {*names}
    assert not any("cpu" in name for name in names)
    table = {"provider_options": dict(options), "cpu_nodes": 0.1}
    for at, change in enumerate(offered):
        written = tomlkit.loads((project.path / "parity.toml").read_text())
        merge(written, {"target": {"browser": table}})
        merge(written, tomllib.loads("\n".join(toml_of(changed, change))))
        own = project.branch(tmp_path / str(at))
        (own.path / "parity.toml").write_text(tomlkit.dumps(written))
        name = listed_as(changed, change) or WEBGPU
        loaded = {one.id: one for one in load_suite(own.path).cases}
        assert {one.id for one in suite.cases} <= {*loaded}, change.name
        made = change.apply(changed).device
        assert loaded[name].device.settings == made.settings, change.name


def test_wasm_is_proposed_as_a_case_beside_the_one_in_webgpu(project):
    _, case = case_of(project)
    (change,) = [one for one in changes_of(case, []) if one.name == 'device = "wasm"']
    assert listed_as(case, change) == WASM
    assert [*toml_of(case, change)] == [
        "[target.browser]",
        'device = ["webgpu", "wasm"]',
    ]
    assert change.apply(case).device == case_of(project, WASM)[1].device


@pytest.mark.parametrize("left_out", [(), ("ConvActivationFusion",)])
def test_a_rewrite_that_a_hint_leaves_out_is_left_out_in_the_browser(
    package, tmp_path, left_out
):
    path = tmp_path / "model.onnx"
    onnx.save(onnx.parser.parse_model(CONVOLUTION), path)
    settings = (("package", str(package.dist.parent)),)
    target = Target(name="browser-wasm", kind="browser", settings=settings)
    with closing(Browser(Device(device="wasm"), target, [path])) as browser:
        opened = browser.ask(
            "open",
            OpenedSession,
            model=browser.files["model.onnx"],
            folder="model",
            level=99,
            threads=1,
            provider=CPU,
            settings={},
            left_out=[*left_out],
        )
    assert opened["nodes"] == 1 + len(left_out)


@pytest.mark.parametrize(
    ("place", "table"),
    [
        pytest.param(None, "[backend.onnxruntime]", id="here"),
        pytest.param(
            Target(name="w-webgpu", table="w", device=(("cpu_nodes", 0.0),)),
            "[target.w]",
            id="target",
        ),
    ],
)
def test_the_limit_of_nodes_is_named_in_the_table_that_sets_it(place, table):
    placed = Placement((), ())
    placed.add(2, [("cast", "Cast")])
    said = placed.too_many(Device(device="webgpu", target=place), "as deployed")
    assert said.endswith(f"`cpu_nodes = 0.5` under {table}.")
