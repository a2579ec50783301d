"""The page of a bundle: a browser opens it, and its trace is judged."""

import json
import re
import shutil
import subprocess
import sys
from contextlib import contextmanager

import pytest

from tests.plugin.project import LIMIT_S, begun, write_project

pytestmark = pytest.mark.browser

CASE = "vae_decoder/onnxruntime/fp32@web-wasm"
TARGETS = """
targets = ["web"]

[target.web]
kind = "browser"
"""


def with_browser(folder):
    made = write_project(folder)
    made.only_onnxruntime()
    made.change("parity.toml", '["fp32"]\n', f'["fp32"]\n{TARGETS}')
    return made


@pytest.fixture(scope="module")
def project(shared_store, tmp_path_factory):
    """A project with the bundle of a case in WebAssembly."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PARITY_STORE", str(shared_store))
        made = with_browser(tmp_path_factory.mktemp("web") / "project")
        made.parity("bundle", CASE, "--out", "bundle").check(0, "README.md")
        yield made


@pytest.fixture
def bundle(project, tmp_path):
    """A copy of the bundle, which a test may change."""
    return shutil.copytree(project.path / "bundle", tmp_path / "bundle")


@contextmanager
def served(bundle, *words):
    """Serve a bundle, and yield the first line that its server prints."""
    command = [sys.executable, "serve.py", *(words or ("--port", "0"))]
    with begun(command, bundle) as server, server.stdout:
        yield server.stdout.readline()


@contextmanager
def ended(browser, bundle):
    """Open a bundle until its page has ended; yield the page and what it saved."""
    with served(bundle) as line:
        page, saved = browser.new_page(), []
        page.on("download", lambda one: saved.append(one))  # noqa: PLW0108  # playwright sets an attribute of it
        page.goto(re.search(r"http://\S+", line)[0])
        page.wait_for_selector("body[data-ended]", timeout=LIMIT_S * 1000)
        yield page, saved
        page.close()


def said(page):
    return page.inner_text("#state")


def test_the_trace_of_a_page_is_judged(project, browser, bundle, tmp_path):
    with ended(browser, bundle) as (page, saved):
        assert page.get_attribute("body", "data-ended") == "made", said(page)
        with page.expect_download() as again:
            page.click("#save")
        again.value.save_as(tmp_path / "trace.npz")
        first = saved[0].path()
        assert first.read_bytes() == (tmp_path / "trace.npz").read_bytes()

    trace = str(tmp_path / "trace.npz")
    project.parity("judge", trace, "--name", "phone").check(
        0, "✓ vae_decoder/onnxruntime/fp32@phone", "layers use", "outputs use"
    )


def rewrite(path, change):
    told = json.loads(path.read_text())
    change(told)
    path.write_text(json.dumps(told))


def with_other_weights(bundle):
    model = bundle / "model-0" / "model.onnx"
    data = bytearray(model.read_bytes())
    data[-1] ^= 1
    model.write_bytes(data)


def with_other_feeds(bundle):
    feeds = bundle / "feeds.npz"
    data = bytearray(feeds.read_bytes())
    data[200] ^= 1
    feeds.write_bytes(data)


def with_webgpu(bundle):
    """Ask for what this browser has not: it runs without a graphics card."""
    rewrite(
        bundle / "bundle.json", lambda told: told["settings"].update(device="webgpu")
    )


def with_fallen_nodes(bundle):
    """Let the page ask for WebGPU, and the runtime run all nodes in WebAssembly."""

    def change(told):
        for call in told["calls"]:
            if call["do"] == "open":
                call["said"]["provider"] = "WebGpuExecutionProvider"

    rewrite(bundle / "bundle.json", change)
    nodes = {"model-0": {"exact": [], "known": []}}
    rewrite(bundle / "browser.json", lambda told: told.update(nodes=nodes))
    # The runtime is real, and it says of itself that the CPU provider runs all nodes.
    driver = bundle / "page" / "driver.mjs"
    text = driver.read_text().replace('WebGpuExecutionProvider: "webgpu"', "")
    found = text.replace("NAMES[provider];", 'NAMES[provider] ?? "wasm";')
    found = found.replace('device === "wasm" ? null : placed', "placed")
    assert found != text
    driver.write_text(found)


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (with_other_weights, "model-0/model.onnx is not the file of this bundle; copy"),
        (with_other_feeds, "feeds.npz cannot be read, because its array "),
        (with_webgpu, "This browser has no WebGPU adapter; "),
        (with_fallen_nodes, "WebGPU does not run all of the network in this browser"),
        (
            lambda bundle: bundle.joinpath("feeds.npz").unlink(),
            "The server answers 404 for feeds.npz; look whether serve.py runs",
        ),
    ],
    ids=["weights", "feeds", "adapter", "fallen", "absent"],
)
def test_a_page_that_cannot_make_the_calls_leaves_no_trace(
    browser, bundle, damage, words
):
    damage(bundle)
    with ended(browser, bundle) as (page, saved):
        assert words in said(page)
        assert not page.is_visible("#save")
        assert not saved


def test_a_port_in_use_is_said(bundle):
    with served(bundle) as line:
        port = re.search(r":(\d+)/", line)[1]
        done = subprocess.run(
            [sys.executable, "serve.py", "--port", port],
            cwd=bundle,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    assert done.returncode == 1
    why = "another program uses it"
    assert (
        done.stderr
        == f"Port {port} cannot be served ({why}); give another with --port.\n"
    )


@pytest.mark.parametrize("port", ["65536", "-1", "x", "²"])
def test_what_is_no_port_is_refused(bundle, port):
    done = subprocess.run(
        [sys.executable, "serve.py", f"--port={port}"],
        cwd=bundle,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    assert f"{port!r} is no port; give a number from 0 to 65535" in done.stderr


def test_sketches_are_refused_before_anything_runs(project):
    project.parity("bundle", CASE, "--layers", "stats", "--out", "other").check(
        2, f"--layers stats is for a bundle that Python runs, and {CASE} runs without"
    )
    assert not (project.path / "other").exists()
