"""Each way in which a pipeline case fails: the run's message, and its files."""

import re

import pytest

from tests.plugin.drawing import ONNXRUNTIME, STEPS

FACTOR = "the app's scaling_factor is 0.3, the VAE's config.json has 0.63462"

OUTCOMES = {
    "text2img": ("within", "within"),
    "tight": ("exceeds", "within"),
    "scaled": ("within", "exceeds"),
    "known": ("within", "gap"),
    "stale": ("stale-gap", "exceeds"),
    "shifted": ("schedule", "schedule"),
    "misread": ("within", "misread"),
    "unread": ("run", "run"),
}


def case(name):
    return ONNXRUNTIME.replace("text2img", name)


def line_of(ended, name):
    """Return the line of a case, which comes before the summary."""
    lines = (line for line in ended.text.splitlines() if f" {case(name)} " in line)
    return next(lines)


def block_of(ended, name):
    """Return what the summary says of a case, in one line."""
    starts = [n for n, line in enumerate(ended.parity) if f"✗ {case(name)}" in line]
    rest = ended.parity[starts[0] + 1 :]
    inner = [line for line in rest if line.startswith("     ")]
    ends = next(n for n, line in enumerate(rest) if not line.startswith("     "))
    return ended.parity[starts[0]] + " " + " ".join(" ".join(inner[:ends]).split())


def show(misdrawn, name):
    return misdrawn[0].parity("show", "last", case(name))


def test_a_difference_is_1(misdrawn):
    _, ended = misdrawn
    ended.check(1, "9 failed, 7 passed")
    assert not ended.has("INTERNALERROR")


def test_each_ends_in_a_way_of_its_own(misdrawn):
    assert misdrawn[0].outcomes == {
        f"{case(name)}/{what}": outcome
        for name, outcomes in OUTCOMES.items()
        for what, outcome in zip(("latents", "image"), outcomes, strict=True)
    }


def test_the_line_tells_the_picture_and_who_brought_it(misdrawn):
    line = line_of(misdrawn[1], "scaled")
    assert line.startswith(" ✗ ")
    assert re.search(
        r"picture \d\d\.\d dB, off by [\d.]+ of 255 · the app's scaling_factor", line
    )
    assert "image exceeds" in line


def test_the_line_and_the_block_tell_the_step_at_which_it_parts(misdrawn):
    _, ended = misdrawn
    block = block_of(ended, "tight")
    assert f"first diverges at step 1 of {STEPS}" in line_of(ended, "tight")
    assert f"first diverges at step 1 of {STEPS}  (teacher-forced)" in block
    assert "allowed 0.000e+00" in block
    assert "timestep 667" in block
    assert re.search(r"picture \d+\.\d dB", block)


def test_the_block_of_a_picture_tells_where_it_is_off_most(misdrawn):
    block = block_of(misdrawn[1], "scaled")
    assert 'first diverges at "a seven in red ink on white paper"  (picture)' in block
    assert block.index(FACTOR) < block.index("at least 0.9999 asked")
    assert re.search(
        r"on picture-0 · worst at \[\d+, \d+, \d\] of \[16, 16, 3\]", block
    )
    assert FACTOR in block


def test_another_schedule_is_said_with_the_setting_behind_it_and_nothing_else(misdrawn):
    block = block_of(misdrawn[1], "shifted")
    assert "the scheduler differs before any network runs" in block
    assert "timesteps [666, 333, 0], expected [667, 334, 1]" in block
    assert block.endswith(
        "steps_offset is 0, expected 1. Make the app's DDIMScheduler as the "
        "checkpoint's."
    )


def test_a_reader_that_reads_something_else_is_told_by_both_readings(misdrawn):
    block = block_of(misdrawn[1], "misread")
    assert re.search(r"misread: read as '\d+', expected '\d+'", block)


def test_a_reader_that_raises_is_named_with_its_picture(misdrawn):
    project, ended = misdrawn
    assert ended.has(
        f"run: reader '{project.path.name}/reader.py:fails' cannot read picture 0 "
        "('a seven in red ink on white paper'): ValueError: no digit in (16, 16, 3)"
    )
    assert not ended.has("Traceback")


def test_a_reader_that_raises_leaves_it_unknown(misdrawn):
    show(misdrawn, "unread").check(
        2, f"{case('unread')}: no values were compared: reader "
    )


def test_a_known_gap_is_accepted_and_named(misdrawn):
    _, ended = misdrawn
    assert line_of(ended, "known").startswith(" ✓ ")
    assert ended.has(f"1 of them only by a known gap: {case('known')}")
    show(misdrawn, "known").check(0)


def test_a_known_gap_that_passes_is_an_error_with_its_line(misdrawn):
    project, ended = misdrawn
    assert ended.has(
        "gap says exceeds, and it passes; remove the gap "
        f"({project.path / 'known_gaps.toml'}:6)"
    )


def test_the_markdown_summary_shows_pictures_that_are_off_and_lists_failures(misdrawn):
    (report,) = misdrawn[0].reports
    text = (report.parent / "summary.md").read_text()
    shown = dict(re.findall(r"!\[(.*)\]\((.*)\)", text))

    # One whose roles were not exchanged is among them.
    assert set(shown) == {case(n) for n in ("scaled", "known", "stale", "misread")}
    for path in shown.values():
        assert (report.parent / path).is_file()
    shifted = case("shifted").replace("/", " | ")
    assert f"\n| {shifted} | **schedule** | **schedule** |" in text
    assert re.search(rf"\| scaled/.*\| {FACTOR} \|", text)


def test_junit_tells_of_a_failing_picture(misdrawn):
    found = misdrawn[0].junit[f"{case('scaled')}/image"]
    assert found["parity.outcome"] == "exceeds"
    assert found["parity.picture"].endswith(FACTOR)


@pytest.mark.parametrize("name", ["scaled", "misread"])
def test_show_says_who_is_to_blame(misdrawn, name):
    ended = show(misdrawn, name).check(1)
    assert re.search(r"^ +100\.0% +vae_decoder ", ended.text, re.MULTILINE)
    assert (", read " in ended.text) is (name == "misread")
