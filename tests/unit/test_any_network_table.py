"""The table of `docs/families.md` of networks without a recipe."""

from fixtures.families import findings


def test_the_page_has_the_table_as_it_is_now():
    assert findings.PAGE.read_text() == findings.page()


def test_enough_networks_are_compared_in_each_runtime():
    """Not compared is what no exporter, converter or runtime took."""
    refused = {"export", "convert", "load", "run"}
    compared = {
        runtime: sum(
            getattr(row, runtime).outputs not in refused
            for row in findings.ROWS.values()
        )
        for runtime in findings.RUNTIMES
    }

    assert len(findings.ROWS) == 36
    assert compared == {"onnxruntime": 36, "mnn": 34}
