"""Where the time goes, on the page of a run."""

from dataclasses import replace

from harness.report.html.page import page_of
from harness.report.html.where import MOST, Where, wheres
from tests.unit.found import found_in
from tests.unit.reports import output, record


def place(module, ms, *kinds):
    return {"module": module, "ms": ms, "operators": 2, "kinds": list(kinds)}


def case(name, *places):
    return {"case": name, "whole_ms": 1.0, "guessed": 0.0, "places": list(places)}


def found_with(folder, *cases):
    found = found_in(folder, [record(output(2.0), case="unet/mnn/fp32")])
    return replace(found, about={**found.about, "where": list(cases)})


BOTH = (
    case("unet/mnn/fp32", place("up", 6.0, "Conv"), place("down", 2.0, "Conv", "Add")),
    case("unet/onnxruntime/fp32", place("down", 3.0, "FusedConv"), place("mid", 1.0)),
    case("vae_decoder/mnn/fp32", place("decoder", 1.0, "Conv")),
)


def test_a_component_has_a_section_with_a_bar_a_file(tmp_path):
    page = page_of(found_with(tmp_path, *BOTH))
    unet, vae = (section for section in page.sections if isinstance(section, Where))

    assert (unet.title, unet.gist) == ("unet: where the time goes", "most in up, 50%")
    assert vae.title == "vae_decoder: where the time goes"
    up, down, mid = unet.chart.figure["data"]
    assert [up["name"], down["name"], mid["name"]] == ["up", "down", "mid"]
    assert list(down["y"]) == ["mnn/fp32", "onnxruntime/fp32"]
    assert list(down["x"]) == [2.0, 3.0]
    assert "25.0%<br>Conv, Add" in down["hovertext"][0]
    assert [row[2:5] for row in unet.table.rows][:2] == [[6.0, 0.75, 2], [2.0, 0.25, 2]]


def test_modules_beyond_the_colours_share_one(tmp_path):
    places = [place(f"block.{at}", 20.0 - at) for at in range(MOST + 3)]
    (section,) = wheres(found_with(tmp_path, case("unet/mnn/fp32", *places)))
    drawn = section.chart.figure["data"]

    assert len(drawn) == MOST + 1
    assert drawn[-1]["name"] == "all others"
    assert list(drawn[-1]["x"]) == [sum(20.0 - at for at in range(MOST, MOST + 3))]
    assert len(section.table.rows) == MOST + 3


def test_a_run_that_was_not_watched_has_no_such_section(tmp_path):
    assert list(wheres(found_with(tmp_path))) == []
