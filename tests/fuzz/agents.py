"""Frames between the harness and the agent on a target, in both directions."""

from __future__ import annotations

import json
import os
import stat
import struct
import sys
from pathlib import Path
from random import Random

import numpy as np

from harness.core.errors import ParityError
from harness.core.shown import shown
from harness.core.text import one_line
from harness.plugins.elsewhere import agent
from harness.runtimes.driving import Values
from tests.fuzz import changes
from tests.fuzz.formats import Format
from tests.fuzz.loop import check_shown

ARRAYS = {"piece": np.arange(4, dtype=np.uint8), "sample": np.ones((2, 3), np.float32)}


def frame(rng: Random, head: dict[str, object], arrays: dict[str, np.ndarray]) -> bytes:
    """A frame whose head, list of arrays, length or bytes are changed."""
    listed = [[name, one.dtype.str, list(one.shape)] for name, one in arrays.items()]
    told = {"head": head, "arrays": listed}
    text = changes.json_text(rng, told).encode("utf-8", "surrogatepass")
    size = len(text)
    if rng.random() < 0.1:
        size = int(rng.choice(changes.NUMBERS)) % 2**32
    data = struct.pack(">I", size) + text + b"".join(map(bytes, arrays.values()))
    return changes.flipped(rng, data) if rng.random() < 0.1 else data


class AgentFormat(Format):
    """Requests that the agent gets."""

    name = "agent"
    # Who sends a request has started the agent, and may end it.
    allowed = (Exception,)

    def begin(self) -> None:
        import tempfile

        tempfile.tempdir = str(self.place / "tmp")
        self.requests = (
            {"do": "have", "with": {"files": {"a" * 64: 4}}},
            {"do": "put", "with": {"digest": "a" * 64, "at": 0, "size": 4}},
            {"do": "place", "with": {"files": {"model.onnx": "a" * 64}}},
            {"do": "seen", "with": {"files": {"/etc/passwd": [1, 2, 3]}}},
            {"do": "close", "with": {}},
        )

    def change(self, rng: Random) -> None:
        self.anew()
        request = rng.choice(self.requests)
        arrays = {"piece": ARRAYS["piece"]} if request["do"] == "put" else {}
        (self.files / "frames").write_bytes(
            b"".join(frame(rng, request, arrays) for _ in range(3))
        )

    def call(self) -> None:
        wire = os.open(self.files / "frames", os.O_RDONLY)
        nothing = os.open(os.devnull, os.O_WRONLY)
        one = agent.Agent(wire, nothing)
        try:
            while True:
                one.answer()
                self.sound = 1
        except ValueError as error:
            check_shown(shown(one_line(str(error))), "a message")
        finally:
            os.close(wire)
            os.close(nothing)


TOLD = {
    "protocol": agent.PROTOCOL,
    "python": "3.11.0",
    "machine": "arm64",
    "numpy": "2.0",
    "lacks": "",
    "runtime": "1.20",
}
ANSWERS: tuple[tuple[dict[str, object], dict[str, np.ndarray]], ...] = (
    ({"done": TOLD}, {}),
    ({"done": False}, {}),
    ({"done": {"lacking": [], "note": ""}}, {}),
    ({"done": "there"}, {}),
    ({"value": "sample"}, {"sample": ARRAYS["sample"]}),
    ({"done": {"outputs": ["sample"]}}, {}),
)
"""What a target answers to each request, from its greeting to a run."""


def healthy() -> list[bytes]:
    """Return what a target sends before the first frame, and each frame."""
    frames = (b"".join(map(bytes, agent.pack(*one))) for one in ANSWERS)
    return [f"\n{agent.READY} 3.11\n".encode(), *frames]


class TargetFormat(Format):
    """What a target sends: it may be anything that its command prints."""

    name = "target"

    def begin(self) -> None:
        from harness.core.runtime import runtime
        from harness.plugins.elsewhere import remote

        remote.STALL_S = 1.0
        self.remote, self.runtime = remote, runtime("onnxruntime")
        self.model = self.healthy.file("models") / "model.onnx"
        program = self.work / "target"
        # It sends the file whatever it is asked, and reads on while somebody writes.
        program.write_text(
            f"#!{sys.executable} -IS\n"
            "import os, sys, time\n"
            f"data = open({str(self.files / 'sent')!r}, 'rb').read()\n"
            "os.write(2, data[-3000:])\n"
            "while data:\n"
            "    data = data[os.write(1, data):]\n"
            "end = time.time() + 0.1\n"
            "os.set_blocking(0, False)\n"
            "while time.time() < end:\n"
            "    try:\n"
            "        if not os.read(0, 1 << 20): break\n"
            "    except BlockingIOError:\n"
            "        time.sleep(0.002)\n"
        )
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
        self.program = str(program)

    def change(self, rng: Random) -> None:
        self.anew()
        changed = rng.randrange(len(ANSWERS) + 1)
        first, *frames = healthy()
        if changed == len(ANSWERS):
            first = changes.flipped(rng, first)
        else:
            frames[changed] = frame(rng, *ANSWERS[changed])
        self.write(b"".join((first, *frames)))

    def write(self, data: bytes) -> None:
        """Let the target send this."""
        (self.files / "sent").write_bytes(data)

    def call(self) -> None:
        from harness.core.case import Target

        target = Target(name="box", command=(self.program,))
        try:
            one = self.remote.Remote(self.runtime, target, [self.model])
            try:
                self._asked(one)
            finally:
                one.close()
        except ParityError as error:
            check_shown(shown(one_line(str(error))), "a message")

    def _asked(self, one: object) -> None:
        came: list[np.ndarray] = []
        values = Values(lambda _name, value: came.append(value), ["sample"])
        try:
            one.ask("run", dict[str, list[str]], {}, values)
        except self.remote.AgentError as error:
            check_shown(shown(one_line(str(error))), "a message")
        log = one.log.text
        check_shown(shown(log, lines=True), "the log of a target")
        json.dumps([one.version, one.about, one.files])
        self.sound = 1
        if len(log) > 1 << 18:
            raise AssertionError(len(log))
        for name in one.files.values():
            Path(name)
