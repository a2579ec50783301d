"""The live line, and the lines that long stages leave."""

import io
import re
import threading
import time
from dataclasses import replace

import pytest

from harness.commands import progress
from harness.commands.progress import Course, ProgressLines, moves
from harness.engine.worker_pool import Progress


class Terminal(io.StringIO):
    def isatty(self):
        return True


def at(stage, subject="unet"):
    return Progress(stage=stage, subject=subject, detail="opset 18")


pytestmark = pytest.mark.usefixtures("quick")


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(progress, "_TICK_S", 0.01)
    monkeypatch.setattr(progress, "LONG_S", 0.02)


def shown(*, live=True, room=80):
    """A stream, and the lines that are shown on it."""
    stream = Terminal()
    return stream, ProgressLines(stream, live=live, room=lambda: room)


def test_a_log_file_gets_ended_long_stages_and_nothing_that_moves():
    stream, lines = shown(live=False)

    lines.tell(at("building"))
    lines.tell(at("exporting"))
    time.sleep(0.03)
    lines.tell(at("done"))
    lines.close()

    text = stream.getvalue()
    assert text.startswith("  exporting  unet ")
    assert text.endswith(" s\n")
    assert text.count("\n") == 1
    assert "\x1b" not in text


@pytest.mark.parametrize("live", [False, True])
@pytest.mark.parametrize(("on_target", "times"), [(False, True), (True, False)])
def test_what_runs_on_a_target_has_no_time(live, on_target, times):
    stream, lines = shown(live=live)
    for stage in ("isolating", "done"):
        lines.tell(replace(at(stage), on_target=on_target))
        time.sleep(0.2)
    lines.close()
    assert "isolating" in stream.getvalue()
    assert bool(re.search(r"\d s\b", stream.getvalue())) is times


def test_a_log_file_gets_lines_of_a_stage_that_goes_on(monkeypatch):
    monkeypatch.setattr(progress, "STILL_S", 0.2)
    stream, lines = shown(live=False)

    for done in (1, 2):
        lines.tell(Progress(stage="tuning", subject="unet", detail=f"{done} inputs"))
    time.sleep(1.0)  # nothing is told meanwhile
    lines.close()

    said = stream.getvalue().splitlines()
    assert len(said) >= 2
    assert all("2 inputs" in line and line.endswith(" s so far") for line in said)


def test_a_terminal_gets_a_line_that_moves_and_is_wiped():
    stream, lines = shown()
    lines.tell(at("exporting"))
    time.sleep(0.2)
    lines.close()
    assert "exporting unet opset 18 0 s" in stream.getvalue()
    assert stream.getvalue().endswith("\x1b[K")


def test_it_is_no_longer_than_there_is_room():
    stream, lines = shown(room=30)
    lines.tell(at("exporting", "a" * 99))
    time.sleep(0.2)
    lines.close()
    moved = stream.getvalue().split("\x1b7\x1b[K")[1:]
    assert moved
    assert all(len(text.partition("\x1b8")[0]) <= 30 for text in moved)


def test_two_jobs_on_one_component_are_kept_apart():
    stream, lines = shown(live=False)

    def convert():
        lines.tell(at("converting"))
        lines.tell(at("done"))

    lines.tell(at("exporting"))
    other = threading.Thread(target=convert)
    other.start()
    other.join()
    time.sleep(0.03)
    lines.tell(at("done"))

    assert stream.getvalue().startswith("  exporting ")


def test_after_it_closed_nothing_is_written():
    stream, lines = shown()
    lines.close()
    lines.tell(at("exporting"))
    time.sleep(0.05)
    assert stream.getvalue() == ""


def test_a_line_of_ones_own_comes_above():
    stream, lines = shown()
    lines.line("done")
    assert stream.getvalue() == "\x1b[Kdone\n"


def test_only_a_terminal_moves_and_no_dumb_one(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    assert moves(Terminal())
    assert not moves(io.StringIO())
    monkeypatch.setenv("TERM", "dumb")
    assert not moves(Terminal())


@pytest.mark.parametrize(
    ("ended", "costs_s", "words"),
    [
        pytest.param("", {}, "0 of 4 cases", id="nothing is known"),
        pytest.param("ab", {}, "2 of 4 cases", id="no run before"),
        pytest.param("ab", {"a": 1.0, "c": 2.0}, "2 of 4 cases", id="few times"),
        pytest.param(
            "ab",
            {"a": 10.0, "b": 5.0, "c": 5.0, "d": 5.0},
            "2 of 4 cases, about 20 s left",
            id="every time",
        ),
        pytest.param(
            "a",
            {"a": 1.0, "b": 5.0, "c": 5.0},
            "1 of 4 cases, about 5 min left",
            id="one case is new",
        ),
    ],
)
def test_the_time_left_comes_from_an_earlier_run(ended, costs_s, words):
    cases = [("suite", name) for name in "abcd"]
    run = Course(cases, {("suite", name): cost for name, cost in costs_s.items()})
    for name in ended:
        run.end(("suite", name))
    assert run.words(time.monotonic() + 30.0) == words


def test_a_lasting_line_begins_where_the_caller_says():
    stream = io.StringIO()
    lines = ProgressLines(stream, live=False, lead=lambda: "\n")
    lines.tell(at("exporting"))
    lines._lanes[threading.get_ident()].since_s -= 10
    lines.tell(at("done"))
    lines.close()
    assert stream.getvalue().startswith("\n  exporting ")


class Unread(io.StringIO):
    def flush(self):
        raise BrokenPipeError


def test_a_job_does_not_fail_where_nobody_reads_its_progress():
    lines = ProgressLines(Unread(), live=False)
    lines.tell(at("exporting"))
    time.sleep(0.03)
    lines.tell(at("done"))
    lines.close()
    with pytest.raises(BrokenPipeError):  # the caller does stop
        lines.line("a case")
