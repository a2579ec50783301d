"""`harness.plugins.plan.page`: the content of a plan's page, from its record."""

import pytest

from harness.core.text import screen
from harness.plugins.plan.page import page_of_plan, plan_page
from harness.plugins.plan.screen import plan_lines
from harness.plugins.plan.text import why
from tests.unit import browser as chromiums
from tests.unit.pages import words

MIB = 2**20
ALONE, FED_BACK = [40.0, 31.0, 35.0], [40.0, 30.5, 29.0]


def file(name, size, usage, db, **about):
    reason = f"SQNR {db} dB, at least 30.0 asked"
    passed = usage is not None and usage <= 1.0
    about = {"usage": usage, "db": db, "passed": passed, "reason": reason, **about}
    return {"name": name, "size_bytes": size * MIB, **about}


def layer(name, bits, shares, *, modules=True):
    costs = {"32": 4000, "8": 1000, "4": 500}
    return {
        "names": [f"op_{name}"],
        "modules": [name] if modules else [],
        "bits": bits,
        "bytes": costs[str(bits)],
        "costs": costs,
        "shares": shares,
    }


def timed(seconds, *, bits):
    shares = {"32": 0.0, "8": 0.1, "4": 0.6, "2": 15.0}
    return {**layer("a", bits, shares), "seconds": seconds}


LOUD = layer("conv_in", 32, {"32": 0.0, "8": 0.13, "4": 38.0})
LAYERS = [
    LOUD,
    layer("down_blocks.0.conv1", 8, {"32": 0.0, "8": 0.002, "4": 0.6}),
    layer("down_blocks.0.conv2", 4, {"32": 0.0, "8": 0.0001, "4": 0.03}),
]


def record(**about):
    files = [
        file("fp32", 11, 0.0001, 110.0),
        file("int4-weights", 2, 3.162, 20.0),
        file("planned", 3, 0.8, 31.94),
    ]
    return {
        "component": "unet",
        "backend": "mnn",
        "variant": "planned",
        "within": "latents",
        "what": "latents",
        "pipeline": "text2img",
        "files": files,
        "unseen": {"count": 8, **file("", 3, 0.9, 30.92)},
        "front": [{"size_bytes": n * MIB, "usage": 2.0 / n} for n in (2, 3, 5)],
        "additivity": {"step 00": 0.9, "step 01": 1.1, "step 02": 1.0},
        "moved": {"teacher-forced": ALONE, "free-running": FED_BACK},
        "conversions": 4,
        "took_s": 300,
        "layers": LAYERS,
        **about,
    }


def section(ident, **about):
    return {one.id: one for one in page_of_plan(record(**about)).sections}.get(ident)


def test_every_file_and_the_front_are_points_of_the_chart():
    traces = section("sizes").chart.figure["data"]
    points = {one["name"]: len(one["x"]) for one in traces if one.get("name")}
    assert points == {"foretold": 3, "every layer alike": 2, "the plan": 1}


@pytest.mark.parametrize(
    ("files", "marked"),
    [
        pytest.param(record()["files"], True, id="decibels"),
        # SSIM decides for one of the two, so decibels and shares have no common axis.
        pytest.param(
            [file("fp32", 11, 0.5, 110.0), file("planned", 3, 0.8, 31.94)],
            False,
            id="another-metric",
        ),
    ],
)
def test_an_axis_of_decibels_is_drawn_only_if_they_are_the_bound(files, marked):
    layout = section("sizes", files=files).chart.figure["layout"]
    assert ("yaxis2" in layout) is marked


def test_times_have_a_chart_where_files_were_timed():
    timed = [{**one, "time_ms": 5.0 + at} for at, one in enumerate(record()["files"])]
    assert section("times") is None
    chart = section("times", files=timed).chart
    assert chart.figure["layout"]["xaxis"]["title"]["text"] == "a run, ms"


def test_a_row_of_blocks_has_the_layers_of_one_block_of_the_network():
    found = section("network").rows
    assert {name: [one.bits for one in row] for name, row in found.items()} == {
        "conv_in": [32],
        "down_blocks.0": [8, 4],
    }


WHYS = (
    layer("a", 32, {}),
    layer("a", 32, {}, modules=False),
    LAYERS[2],
    layer("a", 32, {"32": 0.0, "8": 38.0}),
    # Only numbers of bits that were timed count in a plan that is to be fast.
    timed({"32": 3e-3, "4": 1e-3}, bits=32),
    timed({"32": 1e-3, "4": 1e-3}, bits=32),
    timed({"32": 3e-3, "4": 1e-3}, bits=4),
)
# A text encoder runs before the first step.
BEFORE = {"free-running": FED_BACK}


def test_a_layer_says_why_it_has_its_bits(snapshot):
    assert "\n".join(map(why, WHYS)) == snapshot


@pytest.mark.parametrize(
    "about",
    [{}, {"layers": LAYERS[1:], "moved": BEFORE}, {"moved": {}}],
    ids=["all", "no-float32", "outputs"],
)
def test_the_page_and_the_screen_have_these_words(about, snapshot):
    made = record(**about)

    assert words(plan_page(made)) == snapshot(name="page")
    lines = [line.text for line in screen(plan_lines(made, None))]
    assert "\n".join(lines) == snapshot(name="screen")


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_phone_shows_every_part_without_serious_fault(browser, tmp_path, scheme):
    path = tmp_path / "plan.html"
    path.write_text(plan_page(record()), encoding="utf-8")
    with chromiums.opened(browser, path, width=390, scheme=scheme) as seen:
        page = seen.page
        page.evaluate("document.querySelector('#layers').open = true")
        for chart in page.locator(".chart").all():
            chart.scroll_into_view_if_needed()
            chart.locator(".main-svg").first.wait_for()
        faults = chromiums.serious_faults(page)
        width = page.evaluate("document.documentElement.scrollWidth")

        requests = [url for url in seen.requests if not url.startswith("data:")]
        assert (width, seen.complaints, requests) == (390, [], [path.as_uri()])
        assert faults == []
