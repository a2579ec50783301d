"""Networks that people ship today, from a live module to a verdict on two runtimes.

What is expected of each is in `fixtures/families/findings.py`, and the table of
`docs/families.md` says the same.
"""

import pytest

import harness
from fixtures.families import networks, patches
from fixtures.families.findings import ROWS, RUNTIMES
from harness.core.record import LAYERS, OUTPUTS

SMOKE = {"qwen_image", "whisper_encoder", "whisper_decoder", "super_resolution", "lstm"}
"""What a push runs: with a patch and without, a cache, and what MNN gets wrong."""

SMOKE_WITHOUT = {"qwen_image", "sana"}
"""And without a patch: an exporter that refuses, and one whose optimiser makes NaN."""

WITHOUT = [name for name, row in ROWS.items() if row.without]


def named(names, smoke):
    return [
        pytest.param(name, marks=pytest.mark.smoke if name in smoke else ())
        for name in names
    ]


def checked(name, tmp_path, **options):
    network = networks.build(name)
    return harness.check(
        network.module, network.calls, name=name, runs=tmp_path, **options
    )


def require(verdict, expected):
    """Fail unless each runtime has the outcomes, and the screen names the places."""
    found = {(one.case, one.what): str(one.outcome) for one in verdict.verdicts}
    screen = " ".join(str(verdict).split())
    for runtime, row in expected.items():
        [case] = {case for case, _ in found if f"/{runtime}/" in case}
        came = (found[case, LAYERS], found[case, OUTPUTS])
        assert came == (row.layers, row.outputs), str(verdict)
        assert row.place in screen


@pytest.mark.parity
@pytest.mark.parametrize("name", named(ROWS, SMOKE))
def test_a_network_does_what_the_table_says(name, tmp_path):
    row = ROWS[name]
    patch = getattr(patches, row.patch) if row.patch else ""
    verdict = checked(name, tmp_path, runtimes=list(RUNTIMES), patch=patch)
    require(verdict, {runtime: getattr(row, runtime) for runtime in RUNTIMES})


@pytest.mark.parity
@pytest.mark.parametrize("name", named(WITHOUT, SMOKE_WITHOUT))
def test_without_its_patch_a_network_does_what_the_table_says(name, tmp_path):
    row = ROWS[name]
    require(checked(name, tmp_path, runtimes=list(row.without)), row.without)
