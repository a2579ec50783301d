"""The page of a run in Chromium: it is drawn without errors, quick and interactive."""

from dataclasses import replace

import pytest
from msgspec import structs

from harness.plugins.page.page import write_page
from tests.places import ROOT
from tests.unit import browser as chromiums
from tests.unit.found import found_in
from tests.unit.reports import output, record, row

EXAMPLE = ROOT / "docs" / "digits-report.html"
PROBES = 10_000
MOST_BYTES = 3_000_000
MOST_S = 1.0
PAPER = {"light": "rgb(245, 246, 248)", "dark": "rgb(15, 19, 24)"}
OPEN_ALL = "for (const d of document.querySelectorAll('details')) d.open = 1"

# Where in the window the middle point of the chart's first curve is drawn.
PLACE = """() => {
  const chart = document.getElementById("component-0-depth");
  const { xaxis, yaxis } = chart._fullLayout;
  const { x, y } = chart._fullData[0];
  const { left, top } = chart.getBoundingClientRect();
  const at = x.length >> 1;
  return [
    left + xaxis._offset + xaxis.d2p(x[at]),
    top + yaxis._offset + yaxis.d2p(y[at]),
  ];
}"""


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """The page of 10,000 probes in two runtimes; in one the last five are wrong."""
    model = row("v", 2.0)

    def probes(wrong_from):
        for at in range(PROBES):
            module = f"down_blocks.{at // 1000}.attentions.{at % 1000}.ff.net.0"
            floors = (0.5 + at * 37 % 100 / 30) * (200.0 if at >= wrong_from else 1.0)
            yield replace(
                model,
                probe=f"v{at}",
                position=at,
                module=module,
                source=f"diffusers/models/attention.py:{at % 700}",
                parents=(f"v{at - 1}",) if at else (),
                comparison=structs.replace(
                    model.comparison, rms=floors * 1e-3, floor_multiple=floors
                ),
            )

    folder = tmp_path_factory.mktemp("large")
    records = [
        record(*probes(wrong_from), output(3.0), case=f"unet/{backend}/fp32")
        for backend, wrong_from in (("mnn", PROBES - 5), ("onnxruntime", PROBES))
    ]
    return write_page(found_in(folder, records, exit_code=1), folder / "report.html")


@pytest.fixture
def seen(browser, large):
    with chromiums.opened(browser, large) as seen:
        yield seen


@pytest.fixture
def table(seen):
    seen.page.locator("#component-0 > summary").click()
    of_values = seen.page.get_by_text("Values of unet")
    return seen.page.locator(".table").filter(has=of_values)


@pytest.fixture
def chart(seen):
    seen.page.locator("#component-0 > summary").click()
    seen.page.locator("#component-0-depth").scroll_into_view_if_needed()
    seen.page.wait_for_selector("#component-0-depth .scatterlayer .trace")
    return seen.page.locator("#component-0-depth")


def test_ten_thousand_probes_make_a_small_page_that_is_soon_usable(seen, large):
    assert large.stat().st_size < MOST_BYTES
    assert seen.busy_s < MOST_S


@pytest.mark.usefixtures("chart")
def test_a_page_draws_its_charts_without_a_complaint_or_a_request(seen, large):
    assert seen.complaints == []
    requests = [url for url in seen.requests if not url.startswith("data:")]
    assert requests == [large.as_uri()]


def test_a_table_sorts_by_the_column_that_is_clicked(table):
    head = table.get_by_role("columnheader", name="floors", exact=True)
    head.get_by_role("button").click()

    cells = table.locator("td:nth-child(4)").all_inner_texts()
    floors = [float(cell.replace(",", "")) for cell in cells]
    assert head.get_attribute("aria-sort") == "descending"
    assert len(floors) == 10
    assert floors == sorted(floors, reverse=True)


def test_a_table_filters_by_what_is_typed_and_counts_what_is_left(table):
    table.get_by_role("searchbox").fill("attentions.77.FF")

    places = table.locator("td.place code").all_inner_texts()
    assert all(".attentions.77.ff." in place for place in places)
    assert "1–10 of 20" in table.inner_text()


def test_a_table_can_show_only_what_is_out_of_tolerance(table):
    table.get_by_label("only out of tolerance").check()

    assert "1–5 of 5" in table.inner_text()
    assert table.locator("tr.wrong").count() == 5


@pytest.mark.usefixtures("chart")
def test_a_chart_changes_to_floors_and_draws_there_each_curve_s_own_limit(seen):
    choice = seen.page.locator("select[data-chart=component-0-depth]")
    trace = "document.getElementById('component-0-depth').data[{}].y[0]"
    first, limit = (seen.page.evaluate(trace.format(at)) for at in (0, 1))
    choice.select_option("floors")
    seen.page.wait_for_function(f"{trace.format(1)} === 16")
    floors = seen.page.evaluate(trace.format(0))
    choice.select_option("limit")
    seen.page.wait_for_function(f"{trace.format(1)} === null")

    assert limit is None
    assert floors == pytest.approx(16 * first, rel=1e-3)
    assert seen.complaints == []


def test_a_button_copies_the_command_that_explains_a_failure(browser, large):
    with chromiums.opened(browser, large) as seen:
        seen.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
        seen.page.locator(".copy").first.click()
        seen.page.get_by_text("copied", exact=True).wait_for()

        copied = seen.page.evaluate("navigator.clipboard.readText()")
        assert copied == "parity explain unet/mnn/fp32"


def test_a_cell_of_the_table_of_risk_leads_by_keyboard_to_its_failure(seen):
    cell = seen.page.locator(".matrix td.bad a")
    cell.focus()
    seen.page.keyboard.press("Enter")

    assert seen.page.locator(".failure:target h3").inner_text() == "✗ unet/mnn/fp32"


def test_hovering_names_module_operator_shape_and_source_line(seen, chart):
    x, y = seen.page.evaluate(PLACE)
    seen.page.mouse.move(x - 5, y)
    seen.page.mouse.move(x, y)
    hover = chart.locator(".hovertext").first
    hover.wait_for()
    text = hover.text_content()

    assert text.startswith("down_blocks.")
    assert "conv2d · 2×8 · diffusers/models/attention.py:" in text
    assert "floors" in text


@pytest.fixture(params=["example", "large"])
def either(request, large):
    """The page of a full run, and that of very many probes."""
    return {"example": EXAMPLE, "large": large}[request.param]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_phone_shows_a_page_without_scrolling_sideways(browser, either, scheme):
    with chromiums.opened(browser, either, width=390, scheme=scheme) as seen:
        width = seen.page.evaluate("document.documentElement.scrollWidth")
        paper = seen.page.evaluate("getComputedStyle(document.body).backgroundColor")
        seen.page.evaluate(OPEN_ALL)
        of_all = seen.page.evaluate("document.documentElement.scrollWidth")

        assert (width, of_all, paper) == (390, 390, PAPER[scheme])
        assert seen.complaints == []


def test_every_failure_can_be_read_on_paper(browser, large):
    with chromiums.opened(browser, large, width=680, scheme="dark") as seen:
        seen.page.emulate_media(media="print")
        style = "part => [getComputedStyle(part).color, part.scrollWidth <= 680]"
        cards = seen.page.locator(".failure")

        assert cards.count() == 1
        for card in cards.all():
            assert card.is_visible()
            assert card.evaluate(style) == ["rgb(27, 32, 39)", True]
            assert card.locator(".sketch svg").is_visible()
            assert card.locator(".copied").first.is_visible()
        assert not seen.page.locator(".copy").first.is_visible()


# The state of the page while it is printed, and at any other time.
STATE = """() => ({
  cases: document.querySelector("#cases").open,
  rows: document.querySelectorAll("#cases tbody tr").length,
  width: document.querySelector("#component-0-depth .main-svg").clientWidth,
})"""


def test_printing_opens_what_matters_and_closes_it_again(browser):
    with chromiums.opened(browser, EXAMPLE) as seen:
        page = seen.page
        page.locator("#component-0-depth").scroll_into_view_if_needed()
        page.wait_for_selector("#component-0-depth .main-svg")
        before = page.evaluate(STATE)
        page.evaluate(f"addEventListener('beforeprint', () => printed = ({STATE})())")
        cases = page.locator(".matrix td.cell").count()

        page.pdf()

        assert before["cases"] is False
        assert page.evaluate("printed.cases")
        assert page.evaluate("printed.rows") >= cases
        assert page.evaluate("printed.width") == 680
        wide = "document.querySelector('#component-0-depth .main-svg').clientWidth"
        page.wait_for_function(f"{wide} === {before['width']}")
        assert page.evaluate(STATE)["cases"] is False
        assert seen.complaints == []


def test_the_example_of_a_full_run_draws_every_chart_and_sorts_every_table(browser):
    assert EXAMPLE.stat().st_size < MOST_BYTES
    with chromiums.opened(browser, EXAMPLE) as seen:
        assert seen.busy_s < MOST_S
        seen.page.evaluate(OPEN_ALL)
        charts = seen.page.locator(".chart[id]")
        for at in range(charts.count()):
            charts.nth(at).scroll_into_view_if_needed()
            charts.nth(at).locator(".main-svg").first.wait_for()
        assert charts.count() > 10
        tables = seen.page.locator(".table")
        for at in range(tables.count()):
            head = tables.nth(at).get_by_role("columnheader").last
            head.get_by_role("button").click()
            assert head.get_attribute("aria-sort") in {"ascending", "descending"}
        assert tables.count() > 10
        assert seen.complaints == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_checker_of_accessibility_finds_no_serious_fault(browser, either, scheme):
    with chromiums.opened(browser, either, scheme=scheme) as seen:
        seen.page.evaluate("document.querySelector('#component-0').open = 1")
        seen.page.locator("#component-0-depth").scroll_into_view_if_needed()
        seen.page.locator("#component-0 .js-plotly-plot").wait_for()

        assert chromiums.serious_faults(seen.page) == []


def test_error_against_speed_is_drawn_with_a_point_for_each_way(browser, tmp_path):
    cases = ("unet/mnn/fp32", "unet/mnn/int8", "unet/onnxruntime/fp32")
    times = [
        {"case": case, "metric": "latency_ms", "runs": [1.0 + at], "size_bytes": 2**at}
        for at, case in enumerate((*cases, "unet/pytorch/eager"))
    ]
    records = [record(output(2.0 + at), case=case) for at, case in enumerate(cases)]
    found = found_in(tmp_path, records)
    found = replace(found, about={**found.about, "benchmarks": times})
    path = write_page(found, tmp_path / "report.html")

    with chromiums.opened(browser, path) as seen:
        seen.page.locator("#speed-0").locator("summary").first.click()
        seen.page.locator("#speed-0-chart").scroll_into_view_if_needed()
        seen.page.wait_for_selector("#speed-0-chart .scatterlayer .point")

        points = seen.page.locator("#speed-0-chart .scatterlayer .point").count()
        assert points == len(times)
        assert seen.complaints == []
