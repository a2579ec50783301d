"""`harness.plugins.page`: the content of a run's page, as plain values."""

import base64
import io
import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from harness.core.errors import SuiteError
from harness.core.outcome import Outcome
from harness.judge.known_gaps import Gap, load_gaps
from harness.plugins.page.charts import Curve, depth_figure, thinned
from harness.plugins.page.page import (
    page_of,
    pictures_in,
    rendered,
    write_page,
)
from harness.plugins.page.table import short
from harness.report.explained import Explained, measured_by
from harness.report.markdown import table_of
from tests.unit.found import cells
from tests.unit.pages import unpacked
from tests.unit.reports import CASE, chain, output, record, row


def agreeing(case=CASE):
    return record(*chain(1.0, 2.0, 3.0), output(2.0), case=case)


def diverging(case=CASE):
    return record(*chain(1.0, 2.0, 412.0, 400.0), output(61.0), case=case)


def component(page, name="unet"):
    return next(card for card in page.cards if card.title == name)


def test_the_head_says_what_was_tested_without_the_folders_of_one_machine(found):
    facts = found(agreeing())
    (suite,) = facts.about["suites"]
    suites = [{**suite, "checkpoint": "a/b at 4f2c"}]
    environment = {**facts.about["environment"], "commit": "ab" * 20, "dirty": True}
    about = {**facts.about, "suites": suites, "environment": environment}

    tested = page_of(replace(facts, about=about)).headline.tested

    assert tested["checkpoint"] == "a/b at 4f2c"
    assert tested["suite"] == "digits/parity.toml"
    assert tested["commit"] == "abababababab, with changes"
    assert tested["ran"].startswith("torch 2.13.0")
    assert tested["machine"] == "a <fast> one · Linux"


def explained(of, **about):
    told = {
        "suite": of.suite,
        "case": of.case,
        "measured": measured_by(of),
        "first": "v2",
        "command": f"parity explain {of.case}",
        "facts": (("fixed by", "flag = 0   412 → 3 floors"), ("", "size the same")),
        "toml": "flag = 0",
    }
    return {of.key: Explained(**told | about)}


@pytest.mark.parametrize("about", [{"measured": "other files"}, {"first": "v1"}])
def test_an_explanation_of_another_build_or_place_is_not_shown(found, about):
    one = diverging()

    page = page_of(found(one, exit_code=1, explained=explained(one, **about)))

    assert page.failures[0].explained is None
    assert page.failures[0].steps[0].text == f"parity explain {CASE}"


@pytest.mark.parametrize(
    "about",
    [
        {"artifacts": {"mnn": {"digest": "b"}}},
        {"inputs": {"s-0": "b"}},
        {"asked": {"device": "cpu", "threads": 1}},
        {"ran": {"version": "2"}},
    ],
)
def test_other_files_inputs_settings_or_versions_are_another_build(about):
    same = {"artifacts": {"mnn": {"digest": "a"}}, "inputs": {"s-0": "a"}}
    one = replace(diverging(), **same, ran={"version": "1"})
    larger = {"artifacts": {"mnn": {"digest": "a", "size_bytes": 3}}}

    assert measured_by(replace(one, **larger)) == measured_by(one)
    assert measured_by(replace(one, **about)) != measured_by(one)


def test_an_entry_to_accept_a_failure_is_refused_until_somebody_gives_a_reason(
    found, tmp_path
):
    page = page_of(found(diverging(), exit_code=1))
    entry = next(step.text for step in page.failures[0].steps if step.folded)
    path = tmp_path / "known_gaps.toml"

    path.write_text(entry)
    with pytest.raises(SuiteError, match="why"):
        load_gaps(path)
    path.write_text(entry.replace('why = ""', 'why = "a reason"'))
    gaps = load_gaps(path)

    accepted = page_of(found(diverging(), gaps=gaps))
    assert accepted.failures == []
    assert accepted.matrix.kinds == ["gap"]


def test_a_sketch_has_the_limit_of_each_value_at_one_height(found):
    sketch = page_of(found(diverging(), exit_code=1)).failures[0].sketch
    assert sketch is not None
    heights = [float(point.split()[1]) for point in sketch.line[1:].split("L")]

    above = [height < sketch.limit for height in heights]
    assert above == [False, False, True, True]
    assert sketch.top == "25.8 × its limit"
    assert sketch.first == pytest.approx(66.7)


def test_a_sketch_of_nothing_finite_is_drawn_at_its_top(found):
    broken = record(row("v0", math.nan), output(math.nan))

    sketch = page_of(found(broken, exit_code=1)).failures[0].sketch

    assert sketch is not None
    assert sketch.line == "M0.0 0.0"
    assert sketch.top == "beyond any limit"


def test_the_table_of_risk_tells_defects_losses_gaps_and_skips_apart(found):
    missing = {"outcome": "unavailable", "message": "mnn is not installed"}
    gap = Gap(case="unet/mnn/deploy/*", outcome=Outcome.EXCEEDS, why="GELU")
    page = page_of(
        found(
            record(*chain(1.0), output(15.0)),
            record(*chain(1.0), output(2.0), case="vae/mnn/fp32"),
            diverging("unet/mnn/int8-weights"),
            diverging("unet/mnn/fused"),
            diverging("unet/mnn/deploy"),
            record(case="unet/openvino/fp32", failure=missing),
            gaps=(gap,),
            exit_code=1,
        )
    )

    rows = dict(page.matrix.rows)
    cells = {way: (cell.kind, cell.words) for way, cell in rows["unet"].items()}
    assert cells == {
        ("mnn", "fp32"): ("close", "94 %"),
        ("mnn", "int8-weights"): ("loss", "25.8 ×"),
        ("mnn", "fused"): ("bad", "25.8 ×"),
        ("mnn", "deploy"): ("gap", "known gap"),
        ("openvino", "fp32"): ("quiet", "skipped"),
    }
    assert rows["vae"]["mnn", "fp32"].kind == "good"
    assert ("mnn", "fused") not in rows["vae"]
    assert [(name, len(some)) for name, _, some in page.groups] == [
        ("defects", 1),
        ("losses", 1),
    ]


def test_a_curve_has_its_own_limits_and_none_where_another_metric_bounds_it():
    curves = [
        Curve(case="fp32", x=[0, 1], y=[0.5, 2.0], limits=[16.0, 60.0]),
        Curve(case="int4", x=[0, 1], y=[0.5, 0.7], limits=[None, None]),
    ]

    figure = depth_figure(curves, x_title="order")

    limits = {t["name"]: t["meta"] for t in figure["data"] if "meta" in t}
    assert limits == {"fp32, its limit": {"limits": [16.0, 60.0]}}


def test_a_chart_draws_each_runtime_first_and_what_is_out_of_its_limit(found):
    cases = (
        agreeing(),
        agreeing("unet/mnn/fused"),
        diverging("unet/mnn/deploy"),
        agreeing("unet/onnxruntime/fp32"),
    )

    figure = component(page_of(found(*cases, exit_code=1))).chart.figure

    shown = {
        trace["name"]: trace["visible"]
        for trace in figure["data"]
        if "meta" not in trace and "tolerance" not in trace["name"]
    }
    assert shown == {
        "mnn fp32": True,
        "mnn fused": "legendonly",
        "mnn deploy": True,
        "onnxruntime fp32": True,
    }
    assert figure["layout"]["yaxis"]["type"] == "log"
    assert [shape["y0"] for shape in figure["layout"]["shapes"]] == [1.0]


def test_points_out_of_tolerance_have_a_mark_of_their_own(found):
    page = page_of(found(diverging(), exit_code=1))

    *_, wrong = component(page).chart.figure["data"]
    assert wrong["marker"]["symbol"] == "x"
    assert wrong["y"] == [25.75, 25.0, 3.812]


def test_each_point_knows_its_row_of_the_table(found):
    page = page_of(found(agreeing(), diverging("unet/onnxruntime/fp32"), exit_code=1))

    part = component(page)
    shares = cells(part.table, "of limit")
    for trace in part.chart.figure["data"]:
        if "meta" not in trace:
            assert [shares[at] for at in trace["customdata"]] == trace["y"]


def test_a_value_is_listed_once_with_its_worst_sample(found):
    mild = chain(1.0, 1.0, sample="s-0")
    worse = chain(1.0, 9.0, sample="s-1")

    table = component(page_of(found(record(*mild, *worse, output(1.0))))).table

    assert cells(table, "floors") == [1.0, 9.0, 1.0]
    assert cells(table, "sample")[1] == "s-1"


@pytest.mark.parametrize(
    ("errors", "x", "y"),
    [
        pytest.param([1.0, math.inf, 50.0], [0, 1, 2], [1.0, 500.0, 50.0], id="none"),
        pytest.param([3.0, 0.0, 2.0], [0, 2], [3.0, 2.0], id="equal"),
    ],
)
def test_what_is_no_number_is_drawn_above_all_others_and_no_error_is_no_dip(
    errors, x, y
):
    figure = depth_figure([Curve(case="c", x=[0, 1, 2], y=errors)], x_title="order")

    assert (figure["data"][0]["x"], figure["data"][0]["y"]) == (x, y)


def test_a_thinned_curve_keeps_every_peak():
    errors = [1.0] * 10_000
    errors[1234] = errors[7777] = 99.0

    kept = thinned(errors, 1500)

    assert len(kept) <= 1500
    assert {1234, 7777} <= set(kept)


def test_a_component_that_agrees_is_folded(found):
    page = page_of(found(agreeing(), agreeing("vae/mnn/fp32")))

    assert not any(card.open for card in page.cards)


def test_the_environment_names_the_suite_and_not_whose_machine_it_was(found):
    text = rendered(page_of(found(agreeing())), Path())

    assert "digits/parity.toml" in text
    assert "/home/someone" not in text
    assert "parity run" in text


def test_what_a_run_recorded_cannot_write_markup_into_the_page(found, tmp_path):
    evil = "</script><script>alert(1)</script>"
    rows = (row("v0", 1.0, module=evil), output(1.0))

    text = write_page(found(record(*rows)), tmp_path / "r.html").read_text()

    assert evil not in text
    assert evil in unpacked(text)
    assert "a &lt;fast&gt; one" in text


def test_floors_are_explained_before_their_first_use(found):
    text = rendered(page_of(found(diverging(), exit_code=1)), Path())
    explained = text.index("floors: × PyTorch&#39;s own float32 rounding error")

    assert explained < text.index("412 floors")


def test_the_page_asks_for_nothing_from_elsewhere(found):
    text = rendered(page_of(found(agreeing())), Path())

    # plotly's own script, which is packed, names addresses that it asks only for maps.
    assert "http" not in text
    assert " src=" not in text


def test_the_data_of_a_page_is_strict_json(found):
    broken = record(*chain(1.0, math.nan), output(math.inf))

    text = rendered(page_of(found(broken, exit_code=1)), Path())

    json.loads(
        unpacked(text), parse_constant=lambda word: pytest.fail(f"{word} is no JSON")
    )
    assert [short(x) for x in (math.nan, math.inf)] == ["nan", "inf"]


def drawing_record(tmp_path, number):
    """A pipeline of which each case left a picture of noise."""
    noise = np.random.default_rng(0)
    records = []
    for at in range(number):
        path = f"pictures/case-{at}/0-difference-x16.png"
        (tmp_path / path).parent.mkdir(parents=True)
        Image.fromarray(noise.integers(0, 256, (64, 200, 3), np.uint8)).save(
            tmp_path / path
        )
        picture = row("picture.0", 1.0 + at, what="image", module="a seven")
        chained: dict[str, object] = {
            "roles": {},
            "pictures": [path],
            "attribution": None,
        }
        records.append(
            record(picture, case=f"text2img/mnn/v{at}", pipeline=chained, coverage=None)
        )
    return records


def test_pictures_are_inside_the_page_the_worst_first_until_it_is_full(
    found, tmp_path, monkeypatch
):
    records = drawing_record(tmp_path, 2)
    page = page_of(found(*records, whats=("image",), exit_code=1))
    both = pictures_in(page, tmp_path)
    monkeypatch.setattr("harness.plugins.page.page.MOST_BYTES", 20_000)

    inside = pictures_in(page, tmp_path)

    assert len(both) == 2
    assert list(inside) == ["pictures/case-1/0-difference-x16.png"]
    (picture,) = inside.values()
    assert (picture.width, picture.height) == (64, 64)
    kind, _, text = picture.uri.partition(",")
    assert kind == "data:image/webp;base64"
    assert Image.open(io.BytesIO(base64.b64decode(text))).size == (200, 64)


def test_a_picture_says_what_it_shows_and_how_much_is_amplified(found, tmp_path):
    (drawn,) = drawing_record(tmp_path, 1)
    page = page_of(found(drawn, whats=("image",), exit_code=1))

    assert page.cards[0].drawings[0].amplified == "16"
    text = rendered(page, tmp_path)
    assert "PyTorch's picture and that of mnn v0" in text
    assert "Their difference times 16" in text


def pairs_record(tmp_path, losses):
    """A pipeline that drew pairs, the worst of which left a picture each."""
    paths = []
    for seed in range(2):
        paths.append(f"pictures/seed-{seed}-difference-x16.png")
        (tmp_path / paths[-1]).parent.mkdir(exist_ok=True)
        Image.new("RGB", (200, 64)).save(tmp_path / paths[-1])
    drawn = len(losses["psnr"])
    pairs = {
        "by": "bfloat16",
        "margins": dict.fromkeys(losses),
        "prompts": [f"the number {at}" for at in range(drawn)],
        "seeds": list(range(drawn)),
        "losses": losses,
        "limits": {"psnr": [2.55] * drawn, "ssim": [0.1] * drawn},
        "worst": [0, 1],
        "pictures": paths,
    }
    about = {"roles": {}, "pairs": pairs, "attribution": None}
    picture = row("picture.0", 1.0, what="image", module="a seven")
    case = "release/mnn/fp32"
    return record(picture, case=case, pipeline=about, coverage=None)


def test_a_table_has_each_claim_about_pairs_with_its_interval(
    found, tmp_path, snapshot
):
    losses = {"psnr": [5.1] * 9, "ssim": [0.05] * 9, "read": [0.0] * 9}
    drawn = pairs_record(tmp_path, losses)
    table = page_of(found(drawn, whats=("image",))).cards[0].claims

    assert table_of(table) == snapshot


def test_the_worst_pairs_say_what_draws_them_again_and_how_bad_they_are(
    found, tmp_path
):
    losses = {
        "psnr": [5.1, math.nan],
        "ssim": [0.05, math.nan],
        "read": [1.0, 0.0],
    }
    drawn = pairs_record(tmp_path, losses)
    broken, first = page_of(found(drawn, whats=("image",))).cards[0].drawings

    assert first.prompt == "the number 0"
    assert first.words == (
        "seed 0 · PSNR 34.0 dB, 2.00 × its limit · SSIM 0.9975, 50 % of its limit"
        " · read as another thing"
    )
    assert broken.words.startswith("seed 1 · psnr of a picture that is not finite")
