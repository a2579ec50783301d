"""The gate over pairs of prompt and seed: SHIP, DO NOT SHIP, and INCONCLUSIVE."""

import math
import statistics

import pytest

from harness.core.end_to_end import PAIRS
from harness.measure.pictures import PEAK
from tests.plugin.drawing import ONNXRUNTIME, write_drawing

pytestmark = pytest.mark.slow

PROMPT = 'prompts = ["a seven in red ink on white paper"]'
PROMPTS = ("a seven in red ink on white paper", "a two in blue ink on yellow paper")
MARGIN_DB = 10.0
SEEDS = 20
CHECK = f"{ONNXRUNTIME}/{PAIRS}"


@pytest.fixture(scope="module")
def base(store, tmp_path_factory):  # noqa: ARG001  # which it fills
    """A project whose pipeline draws pairs, with a wide margin and a baseline."""
    project = write_drawing(tmp_path_factory.mktemp("gate-pairs") / "app")
    project.only_onnxruntime()
    (project.path / "prompts.txt").write_text("\n".join(PROMPTS))
    drawn = f'prompts_file = "prompts.txt"\nseeds = {SEEDS}\nattribution = false\n'
    project.change("parity.toml", PROMPT, f"{drawn}margin = {{ psnr = {MARGIN_DB} }}")
    # Pairs alone decide here, and no single picture.
    project.change("tolerances.toml", 'image = "standard"', 'image = "quantized"')
    project.parity("run").check(0)

    project.accept().check(0)
    return project


@pytest.fixture
def branch(base, tmp_path):
    """A branch of it, in which something can be changed."""
    return base.branch(tmp_path / "app")


def scale(project, factor):
    """Have the app use another factor of the autoencoder."""
    app = f"app = {{ scaling_factor = {factor} }}\nattribution"
    project.change("parity.toml", "attribution", app)


def test_the_same_build_ships(branch):
    page = branch.gated().check(0)
    assert page.text.startswith("SHIP")
    assert not page.has(CHECK)


def test_a_build_within_its_margin_and_worse_than_the_accepted_one_does_not_ship(
    branch,
):
    scale(branch, 0.3)

    page = branch.gated().check(1)
    assert page.text.startswith("DO NOT SHIP")
    assert page.has(f"{CHECK} worse")
    assert page.has("pictures are worse than the accepted build by psnr")
    assert page.has("by its own margin: SHIP after ")


def test_a_build_at_its_margin_does_not_ship_and_says_once_that_it_is_inconclusive(
    branch,
):
    scale(branch, 0.3)
    assert branch.parity("run").code == 0
    losses = branch.case(ONNXRUNTIME)["pipeline"][PAIRS]["losses"]["psnr"]
    # Half of all pictures exceed this limit, and the claim allows half of them.
    at_db = 20 * math.log10(PEAK / statistics.median(losses))
    branch.change("parity.toml", f"psnr = {MARGIN_DB}", f"psnr = {at_db}")
    # A build that is a little better is within the margin; it is the accepted one.
    branch.change("parity.toml", "= 0.3 }", "= 0.31 }")
    assert branch.parity("run").code == 0
    assert branch.accept().code == 0
    branch.change("parity.toml", "= 0.31 }", "= 0.3 }")

    page = branch.gated(code=2).check(1)
    assert page.text.startswith("DO NOT SHIP")
    assert page.has(f"{CHECK} inconclusive")
    assert page.text.count(f"INCONCLUSIVE after {SEEDS} pictures") == 1, page.text
    assert page.has("more would decide if their share stays")
