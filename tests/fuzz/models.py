"""Models that others send: ONNX, MNN, safetensors and LoRA files, checkpoints."""

from __future__ import annotations

import json
import shutil
import struct
import tomllib
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from harness.core.errors import ParityError, SuiteError
from harness.core.shown import shown
from harness.core.text import one_line
from tests.fuzz import changes
from tests.fuzz.formats import Format
from tests.fuzz.loop import Trouble, check_shown
from tests.places import FIXTURES

_COPIED = 0.2
"""Share of the ONNX files that are taken into a store."""

_OF_WHAT_IS_THERE, _REMOVED = 0.8, 0.2
"""Shares of the changes of a field that has a value, and of those that remove it."""


def _messages(message: Any) -> Iterator[Any]:
    """Yield a message and all that it holds."""
    todo = [message]
    while todo:
        one = todo.pop()
        yield one
        for descriptor, value in one.ListFields():
            if descriptor.type == descriptor.TYPE_MESSAGE:
                many = isinstance(value, list) or hasattr(value, "append")
                todo += list(value) if many or hasattr(value, "__len__") else [value]


def proto(rng: Random, message: Any) -> None:
    """Change one field of a protobuf message, or of one inside."""
    # There are many nodes and one graph.
    kinds: dict[str, list[Any]] = {}
    for one in _messages(message):
        kinds.setdefault(type(one).__name__, []).append(one)
    picked = rng.choice(kinds[rng.choice([*kinds])])
    have = [field for field, _ in picked.ListFields()]
    every = list(picked.DESCRIPTOR.fields)
    field = rng.choice(have if have and rng.random() < _OF_WHAT_IS_THERE else every)
    value = getattr(picked, field.name)
    if hasattr(value, "extend"):
        _repeated(rng, field, value)
    elif rng.random() < _REMOVED:
        picked.ClearField(field.name)
    elif field.type == field.TYPE_MESSAGE:
        value.SetInParent()
    else:
        with suppress(ValueError, TypeError):  # no such number of an enumeration
            setattr(picked, field.name, _scalar(rng, field))


def _repeated(rng: Random, field: Any, held: Any) -> None:
    """Change a list of values or of messages."""
    is_message = field.type == field.TYPE_MESSAGE
    way = rng.randrange(3)
    if not held:
        with suppress(ValueError, TypeError):
            held.add() if is_message else held.append(_scalar(rng, field))
    elif way == 0:
        del held[rng.randrange(len(held))]
    elif way == 1 and is_message:
        held.add().CopyFrom(rng.choice(list(held)))
    elif way == 1:
        held.append(rng.choice(list(held)))
    elif is_message:
        proto(rng, rng.choice(list(held)))
    else:
        with suppress(ValueError, TypeError):
            held[rng.randrange(len(held))] = _scalar(rng, field)


def encodable(name: str) -> str:
    """A name that UTF-8 can hold, and so a message."""
    return name.encode("utf-8", "replace").decode()


def _scalar(rng: Random, field: Any) -> Any:
    if field.type == field.TYPE_STRING:
        return encodable(rng.choice(changes.NAMES))
    if field.type == field.TYPE_BYTES:
        return rng.randbytes(rng.choice((0, 1, 3, 100)))
    if field.type in {field.TYPE_FLOAT, field.TYPE_DOUBLE}:
        return float(rng.choice([0.0, -1.0, float("nan"), float("inf"), 1e30]))
    if field.type == field.TYPE_ENUM:
        return rng.randrange(30)
    width = 31 if field.type in {field.TYPE_INT32, field.TYPE_UINT32} else 63
    number = int(rng.choice(changes.NUMBERS))
    return number if abs(number) < 2**width else 2**width - 1


class OnnxFormat(Format):
    """An ONNX file that somebody else exported."""

    name = "onnx"

    def begin(self) -> None:
        import onnx

        models = self.healthy.file("models")
        self.beside = {
            one: (models / f"{one}.data").read_bytes() for one in ("external.onnx",)
        }
        self.protos = {
            one: onnx.load(models / one, load_external_data=False)
            for one in ("text.onnx", "model.onnx", "external.onnx")
        }
        self.bytes = {one: self.protos[one].SerializeToString() for one in self.protos}
        self.writable = (self.work,)

    def change(self, rng: Random) -> None:
        self.rng = rng
        shutil.rmtree(self.work)
        self.work.mkdir()
        folder = self.anew("net")
        name = rng.choice([*self.protos])
        whole = self.bytes[name]
        if rng.random() < 0.8:
            message = type(self.protos[name])()
            message.CopyFrom(self.protos[name])
            if name == "external.onnx":
                self._external(rng, message)
            for _ in range(rng.choice((1, 1, 2, 4))):
                proto(rng, message)
            whole = message.SerializeToString()
        else:
            whole = changes.flipped(rng, whole)
        (folder / "model.onnx").write_bytes(whole)
        for data in self.beside.values():
            kept = changes.flipped(rng, data) if rng.random() < 0.1 else data
            (folder / "external.onnx.data").write_bytes(kept)
            (folder / "model.onnx.data").write_bytes(kept)

    def _external(self, rng: Random, message: Any) -> None:
        if rng.random() < 0.5:
            return
        held = [one for one in message.graph.initializer if one.external_data]
        entry = rng.choice(rng.choice(held).external_data)
        outside = str(self.place / "outside" / "there")
        odd = (outside, "1" * 5000, "１", "1_0")
        value = rng.choice([*changes.NAMES, *map(str, changes.NUMBERS), *odd])
        entry.value = encodable(value)

    def call(self) -> None:
        from harness.plugins.foreign.files.beside import bring, lacking, weight_files

        path = self.files / "net" / "model.onnx"
        check_shown(shown(lacking(path, "onnx")), "lacking")
        code, _ = self.parity(
            "init", str(self.files / "net"), "--into", "suite", "--no-measure"
        )
        if code == 0:
            self._loads(self.work / "suite")
        self._graph(path)
        weight_files(path, "onnx")
        if self.rng.random() < _COPIED:
            bring(path, "onnx", self.work / "in the store", "model.onnx")

    def _loads(self, folder: Path) -> None:
        """What `parity init` wrote is a suite that can be read."""
        from harness.suite.suite import load_suite

        for name in ("parity.toml", "tolerances.toml"):
            try:
                tomllib.loads((folder / name).read_text(encoding="utf-8"))
            except ValueError as error:
                text = str(error)
                raise Trouble(
                    kind="written", where=f"{name} is no TOML", words=text
                ) from None
        try:
            load_suite(folder / "parity.toml")
        except SuiteError as error:
            raise Trouble(
                kind="written", where="init's suite is refused", words=str(error)
            ) from None

    def _graph(self, path: Path) -> None:
        """What worker processes read of a graph, without its weights.

        An error there ends the stage with a message, so only time, memory and files
        count here.
        """
        import onnx

        from harness.runtimes.graph import onnx_graph
        from harness.runtimes.onnxruntime.layers import layers_of

        def read() -> Iterator[Callable[[], object]]:
            yield from (
                partial(one, path)
                for one in (
                    onnx_graph.read_into,
                    onnx_graph.sides_of,
                    onnx_graph.unread_inputs,
                )
            )
            model = onnx.load(path, load_external_data=False)
            yield partial(onnx_graph.types_of, model)
            yield partial(onnx_graph.exact_nodes, model)
            for one in (
                onnx_graph.makers_of,
                onnx_graph.tensors_of,
                partial(onnx_graph.small_constants, most=64),
                layers_of,
            ):
                yield partial(one, model.graph)

        with suppress(Exception):
            for call in read():
                with suppress(Exception):
                    call()


class MnnFormat(Format):
    """An MNN file: a flatbuffer, and its weights beside it."""

    name = "mnn"
    allowed = (ParityError, ValueError)  # the reader's own sentence

    def begin(self) -> None:
        models = self.healthy.file("models")
        self.seeds = [
            (models / one).read_bytes() for one in ("model.mnn", "external.mnn")
        ]
        self.weights = (models / "external.mnn.weight").read_bytes()

    def change(self, rng: Random) -> None:
        self.anew()
        data = rng.choice(self.seeds)
        if rng.random() < 0.6:
            made = bytearray(data)
            for _ in range(rng.choice((1, 1, 2, 5))):
                # The words of a flatbuffer are offsets and lengths.
                at = rng.randrange(len(made) // 4) * 4
                new = rng.choice(
                    [
                        int(rng.choice(changes.NUMBERS)) % 2**32,
                        rng.randrange(len(made)),
                        (struct.unpack_from("<I", made, at)[0] + 4) % 2**32,
                        2**32 - rng.randrange(1, 200),
                    ]
                )
                struct.pack_into("<I", made, at, new)
            data = bytes(made)
        else:
            data = changes.flipped(rng, data)
        (self.files / "net.mnn").write_bytes(data)
        (self.files / "net.mnn.weight").write_bytes(self.weights)

    def call(self) -> None:
        from harness.plugins.foreign.files.beside import lacking
        from harness.runtimes.mnn import file

        path = self.files / "net.mnn"
        check_shown(shown(lacking(path, "mnn")), "lacking")
        file.converted_by(path)
        for read in (file.operators, file.stored, file.content):
            try:
                found = read(path)
            except ValueError as error:
                check_shown(shown(one_line(str(error))), "a message")
                continue
            self.sound = 1
            if read is file.operators:
                made = file.values_made(found)
                file.tensors_of(found, made, made)


class SafetensorsFormat(Format):
    """Weights, and LoRA files with their metadata."""

    name = "safetensors"

    def begin(self) -> None:
        from harness.core.case import Source
        from harness.recipes import describe
        from tests.unit.recipe_runs import network_of

        self.lora = (FIXTURES / "lora" / "lora.safetensors").read_bytes()
        self.source = Source(path=FIXTURES / "digits", seed=0)
        self.module = network_of(describe("unet", "unet", self.source))
        (size,) = struct.unpack("<Q", self.lora[:8])
        self.head = json.loads(self.lora[8 : 8 + size])
        self.rest = self.lora[8 + size :]

    def change(self, rng: Random) -> None:
        self.anew("net")
        way = rng.randrange(10)
        if way < 2:
            self._write(changes.flipped(rng, self.lora))
        elif way < 6:
            pattern = rng.choice(("to_q", ".*attn1", "(a+)+$", "(x|x)*y", "["))
            told = {"unet.lora_alpha": 8, "unet.alpha_pattern": {pattern: 4}}
            about = changes.json_text(rng, told)
            self.put({**self.head, "__metadata__": {"lora_adapter_metadata": about}})
        else:
            self.put(self.head, rng)
        told = {"lora_alpha": 8, "r": 4, "alpha_pattern": {}}
        text = changes.json_text(rng, told)
        (self.files / "net" / "adapter_config.json").write_text(text, errors="replace")

    def put(self, head: dict[str, Any], rng: Random | None = None) -> None:
        """Write a file with this header, changed if there is something to draw by."""
        text = changes.json_text(rng, head) if rng else json.dumps(head)
        raw = text.encode("utf-8", "surrogatepass")
        self._write(struct.pack("<Q", len(raw)) + raw + self.rest)

    def _write(self, data: bytes) -> None:
        (self.files / "net" / "model.safetensors").write_bytes(data)

    def call(self) -> None:
        from dataclasses import replace

        from harness.recipes.adapters import adapter_for, adapter_of
        from harness.recipes.checkpoint import likely_files, shapes_of
        from harness.suite.forecast import _elements

        path = self.files / "net" / "model.safetensors"
        adapter = adapter_for(replace(self.source, lora=path))
        assert adapter.files
        for file in likely_files(path.parent):
            shapes = shapes_of(file)
            adapter_of(shapes)
            _elements(file)
            self.sound = 1
        adapter.merge(self.module, "unet")


class CheckpointFormat(Format):
    """Configurations of a checkpoint: of networks, tokenizers, schedulers, shards."""

    name = "checkpoint"

    def begin(self) -> None:
        # PyTorch makes a folder of its own when this is imported, which is no finding.
        import torch._dynamo  # noqa: F401

        self.homes = {
            "digits": FIXTURES / "digits",
            "bert": FIXTURES / "text_tasks" / "bert",
            "deberta": FIXTURES / "text_tasks" / "deberta",
            "sd3": FIXTURES / "sd3",
            "flux": FIXTURES / "flux",
            "sdxl": FIXTURES / "sdxl",
            "pixart": FIXTURES / "pixart",
            "roberta": FIXTURES / "text_tasks" / "roberta",
        }
        self.writable = (self.work,)

    def change(self, rng: Random) -> None:
        self.rng = rng
        shutil.rmtree(self.work)
        self.work.mkdir()
        picked = rng.choice([*self.homes])
        home = self.homes[picked]
        folder = self.anew("net")
        texts = {
            path.relative_to(home): path
            for path in home.rglob("*.json")
            if "report" not in path.name and path.stat().st_size < 100_000
        }
        chosen = rng.choice([*texts])
        for name, path in texts.items():
            into = folder / name
            into.parent.mkdir(parents=True, exist_ok=True)
            if name == chosen:
                self._changed(rng, path, into)
            else:
                into.symlink_to(path)
        for path in home.rglob("*"):
            if path.suffix in {".safetensors", ".txt"} and path.is_file():
                into = folder / path.relative_to(home)
                if into.parent.is_dir():
                    into.symlink_to(path)
        if rng.random() < 0.2:
            told = {"metadata": {}, "weight_map": {"a.weight": "m-1.safetensors"}}
            where = rng.choice(
                [path for path in folder.rglob("*") if path.is_dir()] or [folder]
            )
            name = "diffusion_pytorch_model.safetensors.index.json"
            (where / name).write_text(changes.json_text(rng, told), errors="replace")

    def _changed(self, rng: Random, path: Path, into: Path) -> None:
        try:
            told = json.loads(path.read_text(encoding="utf-8"))
        except ValueError:
            told = {}
        data = changes.json_text(rng, told).encode("utf-8", "surrogatepass")
        if rng.random() < 0.1:
            data = changes.flipped(rng, data)
        into.write_bytes(data)

    def call(self) -> None:
        code, _ = self.parity(
            "init", str(self.files / "net"), "--into", "suite", "--no-measure"
        )
        if code == 0:
            self._read(self.work / "suite" / "parity.toml")

    def _read(self, path: Path) -> None:
        """What reading the suite looks at, and the forecasts of its memory."""
        from harness.suite.forecast import cost_of, known_weights
        from harness.suite.suite import load_suite

        suite = load_suite(path)
        for case in suite.cases[:3]:
            cost_of(case, "torch")
            known_weights(case.component)
