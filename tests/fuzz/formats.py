"""Each format that is read: how a file of it is changed, and who reads it."""

from __future__ import annotations

import hashlib
import io
import json
import lzma
import os
import re
import shutil
import sys
import tarfile
import tomllib
from pathlib import Path
from random import Random
from typing import Any, ClassVar

import numpy as np

from harness.core.errors import ParityError
from harness.core.program import ended
from harness.core.shown import shown
from harness.core.text import one_line
from tests.fuzz import changes
from tests.fuzz.healthy import CASE, Healthy
from tests.fuzz.loop import Trouble, check_shown, command

_PAGES = 0.08
"""Share of the calls that write a page, which takes most of a second."""


class Format:
    """One format; `change` writes a file into ``in``, and `call` has it read."""

    name: ClassVar[str]
    allowed: ClassVar[tuple[type[BaseException], ...]] = (ParityError,)

    def __init__(self, healthy: Path, place: Path) -> None:
        self.healthy, self.place = Healthy(healthy), place
        self.files, self.work = place / "in", place / "work"
        self.writable: tuple[Path, ...] = ()
        self.rng = Random()
        self.sound = 0

    def begin(self) -> None:
        """Prepare what every call needs, and load modules."""

    def change(self, rng: Random) -> None:
        """Write a changed file."""

    def call(self) -> None:
        """Have it read."""

    @staticmethod
    def ends_so(place: Path) -> bool:
        """Whether the harness runs this in a process that native code may end.

        `place` has the input that ended the fuzzer's process.
        """
        del place
        return False

    def parity(self, *words: str, pages: tuple[Path, ...] = ()) -> tuple[int, str]:
        """Call the command; count whether it found anything to say."""
        code, said = command(self.work, *words, pages=pages)
        self.sound = int(code in {0, 1})
        return code, said

    def anew(self, *parts: str) -> Path:
        """Return an empty folder under ``in``."""
        folder = self.files.joinpath(*parts)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        return folder


class ReportFormat(Format):
    """``report.json`` of a run that somebody else made."""

    name = "report"

    def begin(self) -> None:
        self.told = json.loads(self.healthy.report.read_text())
        self.run = self.healthy.report.parent.name
        self.runs = self.files / "reports" / "runs"
        self.suite = str(self.healthy.project)
        self.cases = [case["case"] for case in self.told["cases"]]
        self.change(Random("first"))
        self.writable = (self.files / "reports", self.work)
        # A small report is read more often, and has everything that a large one has.
        for case in self.told["cases"]:
            self._shorten(case)
        self._fail(self.told["cases"][0])

    def _fail(self, case: dict[str, Any]) -> None:
        """Let a case exceed its tolerances: a page says more about such a one."""
        rows = case["rows"]
        for name in ("rms", "max_abs"):
            rows[name] = [1.0 for _ in rows[name]]
        rows["required_atol"] = [[1.0] * len(one) for one in rows["required_atol"]]

    def _shorten(self, case: dict[str, Any]) -> None:
        rows, probes = case["rows"], case["probes"]
        ends = [n for n, what in enumerate(probes["what"]) if what != "layers"]
        kept = [0, 1, *ends[:1]]
        for name, column in probes.items():
            probes[name] = [column[n] for n in kept]
        there = [n for n, at in enumerate(rows["probe"]) if at in kept]
        for name, column in rows.items():
            rows[name] = [column[n] for n in there]
        rows["probe"] = [kept.index(at) for at in rows["probe"]]

    def change(self, rng: Random) -> None:
        self.rng = rng
        text = changes.json_text(rng, self.told)
        data = text.encode("utf-8", "surrogatepass")
        if rng.random() < 0.05:
            data = changes.flipped(rng, data)
        self.write(data)

    def write(self, data: bytes) -> None:
        """Write the file, and what commands read beside it."""
        (self.anew("reports", "runs", self.run) / "report.json").write_bytes(data)
        shutil.rmtree(self.files / "reports" / "baselines", ignore_errors=True)
        (self.files / "reports" / "baselines").mkdir()
        for path in (self.healthy.project / "reports" / "baselines").iterdir():
            shutil.copy(path, self.files / "reports" / "baselines")
        shutil.rmtree(self.work)
        self.work.mkdir()

    def call(self) -> None:
        rng, run = self.rng, str(self.runs / self.run)
        at = ["--runs", str(self.runs)]
        moved = ["--suite", self.suite] if rng.random() < 0.7 else []
        case = rng.choice(self.cases)
        page = self.runs / self.run / "report.html"
        words = rng.choice(
            [
                *[
                    ["show", "last"],
                    ["show", run, case],
                    ["show", run, case, "--modules"],
                ],
                *[["nodes", run, case], ["merge", run], ["diff", run, "project"]],
                *[["diff", str(self.healthy.report), run]],
                *[["baseline", "accept", "--who", "A"], ["baseline", "list"]],
            ]
        )
        if rng.random() < _PAGES:
            words = rng.choice([["report", "last"], ["gate", "last"]])
        if words[0] == "baseline":
            moved = []
        pages = (page, page.with_name("gate.md"))
        self.parity(*words, *at, *moved, pages=pages)
        if rng.random() < 0.1:
            self._by_the_way()

    def _by_the_way(self) -> None:
        """What every new run reads of earlier ones."""
        from harness.engine.finished_run import newest_with
        from harness.engine.run_folder import costs_of

        key = (self.told["cases"][0]["suite"], self.cases[0])
        costs_of(self.runs, [key])
        newest_with(self.runs, key)


class BaselineFormat(ReportFormat):
    """A baseline: JSON that is compressed by xz."""

    name = "baseline"

    def begin(self) -> None:
        (path,) = (self.healthy.project / "reports" / "baselines").iterdir()
        self.file = path.name
        self.kept = json.loads(lzma.decompress(path.read_bytes()))
        super().begin()
        for case in self.kept["cases"]:
            self._shorten(case)

    def change(self, rng: Random) -> None:
        self.rng = rng
        text = changes.json_text(rng, self.kept).encode("utf-8", "surrogatepass")
        if rng.random() < 0.01:
            text = b" " * (300 << 20)
        data = lzma.compress(text, preset=0)
        if rng.random() < 0.15:
            data = changes.flipped(rng, data)
        self.write_packed(data)

    def write(self, data: bytes) -> None:
        """Write the baseline, packed."""
        self.write_packed(lzma.compress(data))

    def write_packed(self, data: bytes) -> None:
        """Write the baseline's bytes, and a run beside it."""
        beside = self.anew("reports", "baselines")
        folder = self.anew("reports", "runs", self.run)
        shutil.copy(self.healthy.report, folder)
        (beside / self.file).write_bytes(data)

    def call(self) -> None:
        at = ["--runs", str(self.runs)]
        moved = ["--suite", self.suite] if self.rng.random() < 0.7 else []
        run = str(self.runs / self.run)
        words = self.rng.choice(
            [
                *[["diff", "project", run], ["diff", run, "project"]],
                *[["baseline", "list"]],
                *[["show", "project"], ["baseline", "accept", "--who", "A"]],
            ]
        )
        if self.rng.random() < _PAGES:
            words = ["gate", "last", *self.rng.choice(([], ["--baseline", "project"]))]
        if words[0] == "baseline":
            moved = []
        page = self.runs / self.run / "report.html"
        self.parity(*words, *at, *moved, pages=(page, page.with_name("gate.md")))


class CardFormat(Format):
    """A card: JSON with a digest that its author made, arrays, and calls in it."""

    name = "card"
    ways: ClassVar[tuple[str, ...]] = ("card", "card", "card", "arrays", "bytes")
    real = 0.02

    def begin(self) -> None:
        card = self.healthy.file("card")
        self.signed = json.loads((card / "card.json").read_text())
        with np.load(card / "card.npz") as stored:
            self.arrays = dict(stored)
        self.ship = self.work / "ship"
        shutil.copytree(self.healthy.file("ship"), self.ship)
        (self.work / "empty").mkdir()
        from harness.plugins.card import verify

        del verify
        self.change(Random("first"))

    def change(self, rng: Random) -> None:
        self.rng = rng
        told = json.loads(json.dumps(self.signed["card"]))
        way = rng.choice(self.ways)
        data = (self.healthy.file("card") / "card.npz").read_bytes()
        if way == "arrays":
            data = changes.npz(rng, self.arrays)
        elif way == "calls":
            case = rng.choice(told["cases"])
            calls = json.loads(case["bundle"])
            part = rng.choice([calls, calls, calls["calls"][0]])
            changed = changes.json_text(rng, part)
            if part is not calls:
                calls["calls"][0] = "@"
                changed = json.dumps(calls).replace('"@"', changed)
            case["bundle"] = changed.encode("utf-8", "replace").decode()
        told["arrays"] = hashlib.sha256(data).hexdigest()
        text = changes.json_text(rng, told) if way == "card" else json.dumps(told)
        whole = self._signed(text)
        if way == "bytes":
            whole = changes.flipped(rng, whole)
        self._write(whole, data)

    def write(self, data: bytes) -> None:
        """Write a card with the healthy arrays, and its author's digest."""
        arrays = (self.healthy.file("card") / "card.npz").read_bytes()
        self._write(self._signed(data.decode()), arrays)

    def _signed(self, text: str) -> bytes:
        signed = f'{{"digest": "{self._digest(text)}", "card": {text}}}'
        return signed.encode("utf-8", "surrogatepass")

    def _write(self, card: bytes, arrays: bytes) -> None:
        folder = self.anew("card")
        (folder / "card.json").write_bytes(card)
        (folder / "card.npz").write_bytes(arrays)

    @staticmethod
    def _digest(text: str) -> str:
        """The digest that an author would give it."""
        try:
            told = json.loads(text)
            plain = json.dumps(told, sort_keys=True, separators=(",", ":"))
        except (ValueError, RecursionError, TypeError):
            return ""
        return hashlib.sha256(plain.encode()).hexdigest()

    def call(self) -> None:
        where = self.ship if self.rng.random() < self.real else self.work / "empty"
        # One case is quick; the others read the same fields.
        case = [] if self.rng.random() < 1 - self.real / 1.1 else [CASE]
        self.parity("verify", str(self.files / "card"), str(where), *case)
        if got := sorted(os.listdir(self.place / "tmp")):  # noqa: PTH208
            raise Trouble(
                kind="left behind",
                where="in the folder of temporary files",
                words=str(got),
            )


class CallsFormat(CardFormat):
    """The calls in a card, with the real files: a runtime runs in a child process."""

    name = "calls"
    ways = ("calls",)
    real = 1.0

    def change(self, rng: Random) -> None:
        super().change(rng)
        shutil.rmtree(self.ship)
        shutil.copytree(self.healthy.file("ship"), self.ship)

    def call(self) -> None:
        from tests.watch import files_below

        before = files_below(self.work)
        super().call()
        if files_below(self.work) != before:
            raise Trouble(kind="outside", where="the deployed files changed", words="")


class TraceFormat(Format):
    """A trace of a bundle, or a dump of somebody's own program."""

    name = "trace"

    def begin(self) -> None:
        from harness.suite.suite import load_suite

        self.suite = load_suite(self.healthy.project / "parity.toml")
        with np.load(self.healthy.file("trace.npz")) as stored:
            self.arrays = dict(stored)
        self.about = json.loads(self.arrays["about"].tobytes())
        with np.load(self.healthy.file("bundle") / "feeds.npz") as stored:
            self.feeds = {name.split("/")[-1]: one for name, one in stored.items()}
        values = [one for one in self.about["values"] if one["kind"] == "outputs"]
        self.outputs = {one["name"]: self.arrays[one["array"]] for one in values}
        self.model = self.healthy.file("models") / "model.onnx"
        self.writable = (self.work,)

    def change(self, rng: Random) -> None:
        self.rng = rng
        self.anew()
        (self.work / "scratch.npz").unlink(missing_ok=True)
        way = rng.randrange(8)
        self.is_dump = way >= 5
        if way < 4:
            text = changes.json_text(rng, self.about)
            self.write(text.encode("utf-8", "surrogatepass"))
        elif way == 4:
            (self.files / "trace.npz").write_bytes(changes.npz(rng, self.arrays))
        elif way == 5:
            (self.files / "trace.npz").write_bytes(changes.npz(rng, self.outputs))
        else:
            self._dump(rng)
        text = 'out = "sample"\n'
        told = {"out": "sample", "x": "y"}
        (self.files / "names.toml").write_text(
            changes.toml_text(rng, text, told), errors="replace"
        )

    def write(self, data: bytes) -> None:
        """Write a trace that says this about itself."""
        self.anew()
        about = np.frombuffer(data, np.uint8)
        np.savez(self.files / "trace.npz", **{**self.arrays, "about": about})

    def _dump(self, rng: Random) -> None:
        folder = self.files / "trace.npz"
        folder.mkdir()
        for name, array in self.outputs.items():
            sub = folder / rng.choice(["realistic-0", "", "x" * 200])
            sub.mkdir(exist_ok=True)
            (sub / f"{name}.npy").write_bytes(changes.npy(rng, array))
        if rng.random() < 0.3:
            (folder / "link.npy").symlink_to(rng.choice(["/dev/zero", "link.npy", "/"]))
        if rng.random() < 0.1:
            os.mkfifo(folder / "pipe.npy")

    def call(self) -> None:
        from harness.plugins.elsewhere.command import traced_case
        from harness.plugins.elsewhere.traced import Traced
        from harness.runtimes.session import SAMPLE

        case = traced_case(
            self.suite,
            self.files / "trace.npz",
            name="" if self.rng.random() < 0.9 else "phone",
            of=CASE if self.is_dump else "",
            names=self.files / "names.toml" if self.rng.random() < 0.1 else None,
            scratch=self.work / "scratch.npz",
        )
        self.sound = 1
        outputs = [spec.name for spec in case.component.outputs]
        token = SAMPLE.set(case.samples[0].id)
        try:
            with Traced(self.model, "onnxruntime", case.device, outputs) as opened:
                opened.run(self.feeds)
                opened.watch(self.feeds, {}, lambda _name, _value: None)
        finally:
            SAMPLE.reset(token)


class BundleFormat(Format):
    """``bundle.json`` and its arrays, as ``run.py`` of the bundle reads them."""

    name = "bundle"
    # It is a program on a device, and comes with a program: `run.py`, which ends as
    # Python does. The same file inside a card is the format `calls`.
    allowed = (SystemExit, Exception)

    @staticmethod
    def ends_so(place: Path) -> bool:
        """Whether the bundle's own script ends so, and leaves no half of a trace."""
        trace = place / "trace.npz"
        script = str(place / "in" / "run.py")
        done = ended([sys.executable, "-I", script, "--out", str(trace)], place)
        return done.words.startswith("crashes by") and not trace.exists()

    def begin(self) -> None:
        from harness.plugins.elsewhere import bundle_run
        from harness.runtimes.onnxruntime.driver import open_driver

        self.run, self.open = bundle_run, open_driver
        shutil.copytree(self.healthy.file("bundle"), self.files, dirs_exist_ok=True)
        self.said = json.loads((self.files / "bundle.json").read_text())
        with np.load(self.files / "feeds.npz") as stored:
            self.arrays = dict(stored)
        self.whole = (self.files / "feeds.npz").read_bytes()

    def change(self, rng: Random) -> None:
        text, feeds = json.dumps(self.said), self.whole
        if rng.random() < 0.7:
            text = changes.json_text(rng, self.said)
        else:
            feeds = changes.npz(rng, self.arrays)
        # Of a thousand threads a device dies; who made the bundle may ask for them.
        text = re.sub(r'"threads": ?\d+', '"threads": 2', text)
        data = text.encode("utf-8", "surrogatepass")
        (self.files / "bundle.json").write_bytes(data)
        (self.files / "feeds.npz").write_bytes(feeds)

    def call(self) -> None:
        self.run.run(self.files, self.open())
        self.sound = 1


class EntryFormat(Format):
    """``entry.json`` of entries of a store."""

    name = "entry"

    def begin(self) -> None:
        self.root = self.files / "store"
        self.writable = (self.root,)
        self.change(Random("first"))

    def change(self, rng: Random) -> None:
        self.rng = rng
        shutil.rmtree(self.root, ignore_errors=True)
        shutil.copytree(self.healthy.file("store"), self.root)
        records = sorted(self.root.rglob("entry.json"))
        for path in rng.sample(records, rng.choice((1, 1, 2))):
            told = json.loads(path.read_text())
            data = changes.json_text(rng, told).encode("utf-8", "surrogatepass")
            way = rng.randrange(10)
            if way == 0:
                data = changes.flipped(rng, data)
            path.unlink()
            if way == 1:
                path.symlink_to(rng.choice(["/dev/zero", "entry.json", "/etc/passwd"]))
            elif way == 2:
                path.mkdir()
            else:
                path.write_bytes(data)

    def call(self) -> None:
        at = ["--store", str(self.root)]
        words = self.rng.choice(
            [
                *[["list"], ["verify"], ["prune", "--max-gb", "0"], ["clear", "--yes"]],
                *[["clear", "--older-than", "1"], ["prune"], ["made"]],
            ]
        )
        if words == ["made"]:
            self._made_anew()
        else:
            self.parity("store", *words, *at)
        # Whatever was damaged is out of the way after this.
        self.parity("store", "verify", *at)
        code, said = self.parity("store", "verify", *at)
        if code:
            raise Trouble(
                kind="not mended", where="store verify, twice", words=said[-800:]
            )

    def _made_anew(self) -> None:
        from harness.engine.store import Store

        def build(folder: Path) -> dict[str, object]:
            (folder / "values.bin").write_bytes(bytes(10))
            return {}

        made = Store(root=self.root).make("floors", {"kind": "fp32", "size": 10}, build)
        made.check()


class SharedFormat(Format):
    """``store.json``, here and shared, and the archives of a shared store."""

    name = "shared"

    def begin(self) -> None:
        self.root, self.url = self.files / "store", f"file://{self.files}/shared"
        self.writable = (self.root, self.files / "shared")
        self.change(Random("first"))

    def change(self, rng: Random) -> None:
        self.rng = rng
        self.anew()
        shutil.copytree(self.healthy.file("store"), self.root)
        shared = self.files / "shared"
        shared.mkdir()
        (shared / "store.json").write_text('{"schema": 1}')
        shutil.rmtree(self.place / "home" / "cache", ignore_errors=True)
        self.mark = rng.random() < 0.3
        if self.mark:
            marks = [self.root / "store.json", shared / "store.json"]
            told = {"schema": 1, "shared": self.url, "read_only": False}
            data = changes.json_text(rng, told).encode("utf-8", "surrogatepass")
            if rng.random() < 0.2:
                data = changes.flipped(rng, data)
            rng.choice(marks).write_bytes(data)
        entries = sorted(self.root.glob("v1/*/*/*"))
        for folder in entries:
            name = folder.relative_to(self.root)
            target = shared / name.with_suffix(".tar")
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(self._archive(rng, folder))
        if rng.random() < 0.2:
            odd = shared / "v1" / rng.choice(["x", "..", "floors"]) / "zz"
            odd.mkdir(parents=True, exist_ok=True)
            (odd / f"{rng.choice(['q', 'a b', 'x' * 200])}.tar").write_bytes(b"no tar")

    def _archive(self, rng: Random, folder: Path) -> bytes:
        file = io.BytesIO()
        kind = rng.choice(("w", "w", "w:gz"))
        with tarfile.open(fileobj=file, mode=kind) as tar:
            for path in sorted(folder.iterdir()):
                data = path.read_bytes()
                if path.name == "entry.json" and rng.random() < 0.4:
                    told = json.loads(data)
                    text = changes.json_text(rng, told)
                    data = text.encode("utf-8", "surrogatepass")
                self._add(tar, path.name, data)
            if rng.random() < 0.5:
                self._strange(rng, tar)
        data = file.getvalue()
        return changes.flipped(rng, data) if rng.random() < 0.3 else data

    def _add(self, tar: tarfile.TarFile, name: str, data: bytes) -> None:
        one = tarfile.TarInfo(name)
        one.size = len(data)
        tar.addfile(one, io.BytesIO(data))

    def _strange(self, rng: Random, tar: tarfile.TarFile) -> None:
        outside = str(self.place / "outside" / "there")
        up = "../../../../outside/there"
        name = rng.choice([changes.stored_name(rng), outside, up, "values.bin"])
        one = tarfile.TarInfo(name)
        kinds = (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE)
        one.type = rng.choice((*kinds, tarfile.DIRTYPE, tarfile.REGTYPE))
        one.linkname = rng.choice((outside, "/etc/passwd", ".", "values.bin"))
        one.mode = rng.choice((0o4777, 0o0, 0o644))
        if one.type == tarfile.REGTYPE and rng.random() < 0.02:
            size = 1 << 30
            one.size = size
            one.name = "bomb"
            tar.addfile(one, _Zeros(size))
            return
        if one.type == tarfile.REGTYPE:
            one.size = 4
            tar.addfile(one, io.BytesIO(b"code"))
            self._add(tar, name, b"twice")
            return
        tar.addfile(one)

    def call(self) -> None:
        words = self.rng.choice(
            [
                *[["list"], ["verify"], ["prune", "--max-gb", "0"], ["clear", "--yes"]],
                *[["pull", self.url], ["made"], ["push", self.url]],
            ]
        )
        place = self.rng.choice([str(self.root), self.url])
        if words == ["made"]:
            self._made(self.rng.random() < 0.5)
        elif words[0] == "pull":
            self.parity("store", *words)
        else:
            self.parity("store", *words, "--store", place)

    def _made(self, read_only: bool) -> None:  # noqa: FBT001  # a draw
        from harness.engine.store import Store, located

        def build(folder: Path) -> dict[str, object]:
            (folder / "values.bin").write_bytes(bytes(10))
            return {}

        store = Store(root=located(self.url, read_only=read_only))
        store.make("floors", {"kind": "fp32", "size": 10}, build).check()
        self.sound = 1


class _Zeros(io.RawIOBase):
    """So many zeros, without the memory for them."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self._left = size

    def read(self, size: int = -1) -> bytes:
        take = min(self._left, size if size >= 0 else self._left)
        self._left -= take
        return bytes(take)


class TomlFormat(Format):
    """parity.toml, tolerances.toml and known_gaps.toml."""

    name = "toml"

    def begin(self) -> None:
        self.texts = {
            name: (self.healthy.project / name).read_text()
            for name in ("parity.toml", "tolerances.toml")
        }
        self.texts["known_gaps.toml"] = self.healthy.file("known_gaps.toml").read_text()
        shutil.copytree(self.healthy.project, self.files, dirs_exist_ok=True)

    def change(self, rng: Random) -> None:
        self.rng = rng
        picked = rng.choice([*self.texts])
        for name, text in self.texts.items():
            new = text
            if name == picked:
                told = json.loads(json.dumps(tomllib.loads(text), default=str))
                new = changes.toml_text(rng, text, told)
            data = new.encode("utf-8", "surrogatepass")
            if name == picked and rng.random() < 0.1:
                data = changes.flipped(rng, data)
            (self.files / name).write_bytes(data)

    def call(self) -> None:
        from harness.core.settings import Settings
        from harness.suite.judge import Judge
        from harness.suite.suite import load_suite

        try:
            suite = load_suite(self.files / "parity.toml")
            Judge.of(suite, Settings())
            for check in suite.checks():
                check_shown(shown(str(check)), "a check's name")
        except ParityError as error:
            check_shown(shown(one_line(str(error))), "a message")
            raise
        self.sound = 1


def formats() -> dict[str, type[Format]]:
    from tests.fuzz.agents import AgentFormat, TargetFormat
    from tests.fuzz.models import (
        CheckpointFormat,
        MnnFormat,
        OnnxFormat,
        SafetensorsFormat,
    )
    from tests.fuzz.recorded import RecordedFormat

    kinds = (
        RecordedFormat,
        *(ReportFormat, BaselineFormat, CardFormat, CallsFormat, TraceFormat),
        *(BundleFormat, EntryFormat, SharedFormat, OnnxFormat, MnnFormat),
        *(SafetensorsFormat, CheckpointFormat, AgentFormat, TargetFormat, TomlFormat),
    )
    return {kind.name: kind for kind in kinds}


NAMES = (
    "recorded",
    *("report", "baseline", "card", "calls", "trace", "bundle", "entry", "shared"),
    *("onnx", "mnn", "safetensors", "checkpoint", "agent", "target", "toml"),
)
