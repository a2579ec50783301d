"""A runtime on a target: the same session through an agent, and each way it breaks."""

import ast
import os
import resource
import sys
import tempfile
from functools import partial
from typing import cast

import numpy as np
import onnx
import pytest

from harness.core.case import Device, Target
from harness.core.errors import StageError
from harness.core.kept_log import KEPT_BYTES
from harness.core.outcome import Outcome
from harness.core.runtime import runtimes
from harness.engine.export_files import MODEL
from harness.engine.host import Host
from harness.plugins.elsewhere import agent, bundle_run, remote
from harness.plugins.elsewhere.traced import Sketched
from harness.runtimes.session import open_session
from tests.unit import nets

OUTPUTS = ["map", "pooled"]
COMMAND = (sys.executable,)
DRIVERS = {one.name: one.driver for one in runtimes().values() if one.driver}


def device(command=COMMAND, **settings):
    target = Target(name="phone", command=command) if command else None
    return Device(threads=1, target=target, **settings)


def measured(backend, path, device):
    """All that a session can be asked: outputs, watched values, operators alone."""
    feeds = nets.feeds(nets.BLOCKS)
    watched = nets.Seen()
    alone = nets.Seen()

    sizes = dict.fromkeys(made_in(backend, path), 1)
    with open_session(backend, path, device, OUTPUTS) as session:
        run = session.run(feeds)
        seen = session.watch(feeds, sizes, watched.keep)
        session.isolate(feeds, dict(watched), alone.keep)
        return run, seen, watched, alone, session.ran


def made_in(backend, path):
    if backend == "mnn":
        from harness.runtimes.mnn.file import operators

        return [name for one in operators(path) for name in (one.name, *one.makes)]
    return [name for node in onnx.load(path).graph.node for name in node.output]


@pytest.fixture(scope="module")
def files(mnn_file, tmp_path_factory):
    """A deployed file of each runtime that can run on a target."""
    weights = tmp_path_factory.mktemp("external")
    nets.export(nets.Blocks(), nets.BLOCKS, weights, external_data=True)
    return {"mnn": mnn_file, "onnxruntime": weights / MODEL}


def bits(arrays):
    return {name: (one.dtype, one.shape, one.tobytes()) for name, one in arrays.items()}


@pytest.mark.parametrize("backend", DRIVERS)
def test_a_local_python_as_the_target_computes_the_same_bits(files, job, backend):
    here = job(measured, backend, files[backend], device(None))
    there = job(measured, backend, files[backend], device())
    assert len(here[2]) > 5
    assert len(here[3]) > 2
    assert [bits(one) for one in there[:4]] == [bits(one) for one in here[:4]]
    assert ("target", "phone") in there[4].detail


def test_files_that_a_target_cannot_see_are_sent_once(files, job, tmp_path):
    sent = job(sent_files, files["onnxruntime"], tmp_path)
    assert sent[0] == sorted(
        path.name for path in files["onnxruntime"].parent.glob("[mw]*")
    )
    assert sent[1] == []
    assert sent[2] == [MODEL]


def sent_files(path, folder):
    """The files that sessions in a row send to a target that shares no disk.

    Before the third one, the target's copy of the graph is cut short.
    """
    os.environ["TMPDIR"] = str(folder)
    sent: list[list[str]] = []
    send = remote.Remote._send_file

    def noted(self, file, digest):
        sent[-1].append(file.name)
        send(self, file, digest)

    remote.Remote._send_file = noted  # type: ignore[method-assign]
    # Another inode number is what the same path on another disk would have.
    remote.source_of = partial(_changed, remote.source_of, b"seen.st_ino,", b"0,")
    for at in range(3):
        sent.append([])
        if at == 2:
            next(folder.glob(f"parity-agent-*/{remote.sha256(path)}")).write_bytes(b"")
        with open_session("onnxruntime", path, device(), OUTPUTS) as it:
            it.run(nets.feeds(nets.BLOCKS))
        sent[-1].sort()
    return sent


def test_a_record_says_that_a_targets_folder_is_not_safe(files, job, tmp_path):
    note = job(noted, files["onnxruntime"], tmp_path)
    assert note.startswith(f"{tmp_path}/parity-agent-")
    assert note.endswith(" is no folder; this session has a folder of its own")


def noted(path, folder):
    os.environ["TMPDIR"] = str(folder)
    (folder / f"parity-agent-{os.getuid()}").symlink_to(folder)
    remote.source_of = partial(_changed, remote.source_of, b"seen.st_ino,", b"0,")
    with open_session("onnxruntime", path, device(), OUTPUTS) as session:
        return dict(session.ran.detail)["files"]


def test_a_piece_that_cannot_be_written_says_why(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    files = agent.Files()
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, before[1]))
    try:
        with pytest.raises(OSError, match="Too many open files"):
            files.put("0" * 64, 0, 4, np.zeros(4, np.uint8))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


DYING = b"""\
            view = memoryview(part)
            if "value" in head:
                os.write(self._out, bytes(view[:7]))
                os.kill(os.getpid(), 11)"""
BROKEN = {
    "absent": (("no-such-emulator",), None, Outcome.UNAVAILABLE, "cannot be run"),
    "no Python": (("cat",), None, Outcome.UNAVAILABLE, "before a Python answered"),
    "ends": (
        ("true",),
        None,
        Outcome.UNAVAILABLE,
        "ended with exit code 0 before a Python answered",
    ),
    "silent": (("sh", "-c", "sleep 60"), None, Outcome.TIMED_OUT, "nothing for 2 s"),
    "old Python": (
        (sys.executable, "-c", ("import sys; sys.stdin.readline(); "
         "print('parity-agent-ready 3.7', flush=True); sys.stdin.read()")),
        None,
        Outcome.UNAVAILABLE,
        "has Python 3.7",
    ),
    "no numpy": (
        (sys.executable, "-S", "-I"), None, Outcome.UNAVAILABLE, "has no numpy"
    ),
    "an echo": (
        ("sh", "-c", "cat -u"), None, Outcome.CRASHED, "repeats what it is sent"
    ),
    "a terminal": (
        (sys.executable, "-c", ("import sys; sys.stdin.readline(); "
         "print('parity-agent-ready 3.11', flush=True); print('$ ' * 99, flush=True); "
         "sys.stdin.read()")),
        None,
        Outcome.CRASHED,
        "no frame",
    ),
    "no runtime": (
        COMMAND,
        (b"import onnxruntime as ort", b"import onnxruntim as ort"),
        Outcome.UNAVAILABLE,
        "No module named 'onnxruntim'",
    ),
    "another protocol": (
        COMMAND,
        (b"PROTOCOL = 2", b"PROTOCOL = 3"),
        Outcome.CRASHED,
        "speaks version 3",
    ),
    "dies in a value": (
        COMMAND,
        (b"            view = memoryview(part)", DYING),
        Outcome.CRASHED,
        "died with SIGSEGV during 'run'",
    ),
}  # fmt: skip
"""The target's command, a change of the agent's source, and what is said."""


def opened(path, command, source=None, stall_s=60.0):
    """The error of a session on a target; with `source` put in the agent's place."""
    remote.STALL_S = stall_s  # type: ignore[misc]
    if source is not None:
        remote.source_of = partial(_changed, remote.source_of, *source)
    sizes = dict.fromkeys(made_in("onnxruntime", path), 1)
    try:
        with open_session("onnxruntime", path, device(command), OUTPUTS) as session:
            session.watch(nets.feeds(nets.BLOCKS), sizes, lambda *_: None)
    except StageError as error:
        return error.outcome, str(error)
    return None


def _changed(source, old, new, module):
    return source(module).replace(old, new)


@pytest.mark.parametrize("how", BROKEN)
def test_a_target_that_breaks_is_a_sentence(files, job, how):
    command, change, outcome, words = BROKEN[how]
    # A Python may take seconds to start where other tests run.
    stall_s = 2.0 if how == "silent" else 60.0
    found = job(opened, files["onnxruntime"], command, change, stall_s)
    assert found[0] is outcome
    assert words in found[1]
    assert found[1].startswith("Target 'phone' ")


DONE = b'self._send({"done": done})'
SHOWN = b'self._send({"value": name}, {name: value})'
FRAME = "data = {}; os.write(self._out, struct.pack('>I', len(data)) + data)"
FALSE = {
    "a head of 4 GB": (DONE, "os.write(self._out, b'\\xff' * 4)", "it begins with"),
    "deep JSON": (DONE, FRAME.format("b'[' * (1 << 20)"), "no frame of the agent"),
    "deep result": (
        DONE,
        FRAME.format("b'{\"head\":{\"done\":' + b'[' * (1 << 16)"),
        "no frame of the agent",
    ),
    "no head": (DONE, FRAME.format("b'{}'"), "missing required field `head`"),
    "a number for a name": (DONE, "self._send({'value': 1})", "Expected `str"),
    "another result": (DONE, "self._send({'done': do})", "during 'hello' (Expected"),
    "another result of open": (
        DONE,
        "self._send({'done': {'outputs': done} if do == 'open' else done})",
        "during 'open' (",
    ),
    "a long version": (
        DONE,
        "done['python'] = '3' * 999; self._send({'done': done})",
        "length <= 200",
    ),
    "a digest that is a number": (
        DONE,
        "self._send({'done': {'have': {'lacking': [1]}, 'seen': False}.get(do, done)})",
        "during 'have' (Expected `str`",
    ),
    "a value that is no answer": (
        DONE,
        "self._show('x', np.zeros(1)), self._send({'done': done})",
        "sent a value 'x' during 'hello'",
    ),
    "two arrays": (
        SHOWN,
        "self._send({'value': name}, {name: value, 'x': value})",
        "no frame of the agent during 'run'",
    ),
    "an array of another name": (
        SHOWN,
        "self._send({'value': name}, {'x': value})",
        "are not those that it names",
    ),
    "a value that nobody asked for": (
        SHOWN,
        "self._send({'value': '../x'}, {'../x': value})",
        "sent a value '../x' that nobody asked for",
    ),
    "a value twice": (
        SHOWN,
        "[self._send({'value': name}, {name: value}) for _ in 'ab']",
        "once more",
    ),
    "no value": (SHOWN, "None", "did not send the value"),
    **{
        f"an array of {dtype} {shape}": (
            SHOWN,
            FRAME.format(
                "json.dumps({'head': {'value': name}, "
                f"'arrays': [[name, '{dtype}', {shape}]]}}).encode()"
            ),
            words,
        )
        for dtype, shape, words in (
            ("|O", "[1]", "no frame"),
            ("|V9", "[1]", "no frame"),
            ("<f4,<f4", "[1]", "no frame"),
            ("<f3", "[1]", "no frame"),
            ("<f4", "[-1]", "no frame"),
            ("<f4", "[1e400]", "no frame"),
            ("<f4", "[1 << 63, 2]", "no frame"),
            ("<f4", "[1 << 40, 1 << 40]", "bytes are read"),
            ("<f4", "[1] * 99", "no frame"),
        )
    },
}
"""What of the agent's source says something else, and what is said of it."""


@pytest.mark.parametrize("how", FALSE)
def test_an_agent_that_lies_is_a_sentence_and_takes_no_memory(files, job, how):
    old, new, words = FALSE[how]

    before, (outcome, text), after = job(
        measured_memory, files["onnxruntime"], (old, new.encode())
    )

    assert outcome is Outcome.CRASHED
    assert text.startswith("Target 'phone' sent ") or "did not send" in text
    assert words in text
    assert len(text) < 500
    assert after - before < 256 << 20


def measured_memory(path, source):
    """An error of a session, and this process's memory before and after it."""
    peaks = [peak()]
    error = opened(path, COMMAND, source)
    return peaks[0], error, peak()


def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


FLOODS = {
    "stderr": (DONE, "[os.write(2, b'x' * 65536) for _ in range(256)]; 1 / 0"),
    "an error": (DONE, "self._send({'failed': 'x' * (8 << 20)})"),
}


@pytest.mark.parametrize("how", FLOODS)
def test_of_an_agent_that_floods_a_short_text_is_kept(files, how):
    old, new = FLOODS[how]
    with Host("flooded") as host:
        ended = host.run(
            *(opened, files["onnxruntime"], COMMAND, (old, new.encode())),
            timeout_s=60,
            label="flooded",
        )

    told = cast("tuple[str, str]", ended.value)[1]
    assert len(ended.log) < 3 * KEPT_BYTES
    assert "bytes are left out here" in (ended.log if how == "stderr" else told)
    assert len(told) < 3 * KEPT_BYTES


def test_a_command_that_prints_without_end_is_refused(files, job):
    outcome, words = job(opened, files["onnxruntime"], ("sh", "-c", "yes", "x"))
    assert outcome is Outcome.UNAVAILABLE
    assert "printed 1,048,577 bytes before a Python answered" in words


def test_a_runtime_too_old_for_the_file_is_a_sentence(files, job, tmp_path):
    newer = onnx.load(files["onnxruntime"])
    newer.opset_import[0].version += 99
    onnx.save(newer, tmp_path / MODEL)
    outcome, words = job(opened, tmp_path / MODEL, COMMAND)
    assert outcome is Outcome.LOAD
    assert words.startswith("onnxruntime ")
    assert "opset" in words


def test_a_target_does_not_get_this_pythons_path(files, tmp_path, monkeypatch):
    (tmp_path / "onnxruntime.py").write_text("raise ImportError('of another Python')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    given = ("env", f"PYTHONPATH={tmp_path}", sys.executable)
    path = files["onnxruntime"]

    with Host("elsewhere") as host:  # it has this environment
        own = host.run(opened, path, COMMAND, timeout_s=60, label="own")
        named = host.run(opened, path, given, timeout_s=60, label="named")

    assert own.value is None
    assert "of another Python" in str(named.value)


SENT = (agent.__name__, bundle_run.__name__, *DRIVERS.values())


@pytest.mark.parametrize("module", SENT)
def test_what_is_sent_is_old_python_and_imports_little(module):
    tree = ast.parse(remote.source_of(module), feature_version=(3, 8))
    inside = [
        node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)
    ]
    roots = [
        [node.module]
        if isinstance(node, ast.ImportFrom)
        else [a.name for a in node.names]
        for node in inside
    ]
    names = {name.partition(".")[0] for root in roots for name in root if name}
    own = {one.module for one in runtimes().values()}
    assert names <= set(sys.stdlib_module_names) | own | {"numpy"}
    assert len(names & own) <= 1


def layer(seed):
    shape = 1, 320, 32, 48
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


@pytest.mark.parametrize("times", [0.0, 1e-6, 1e-3, 1.0])
def test_a_sketch_has_the_error_of_its_value(times):
    value = layer(0)
    actual = value + np.float32(times) * layer(1)
    error = np.sqrt(np.mean((actual - value) ** 2.0))
    found = Sketched(bundle_run.sketch(actual), value.shape).compared(value, 1e-7)
    assert found.rms == pytest.approx(error, rel=0.2)
    assert found.actual_shape == value.shape


def test_statistics_of_a_value_take_less_than_a_kib(tmp_path):
    trace = bundle_run.BundleTrace(OUTPUTS, whole=False)
    for number in range(50):
        trace.add("layers", "realistic-0", f"value_{number}", layer(number))
    trace.save(tmp_path / "trace.npz", {})
    assert (tmp_path / "trace.npz").stat().st_size < 1024 * len(trace.values)


def test_a_mask_is_whole_and_as_small_as_a_sketch(tmp_path):
    mask = np.triu(np.full((4, 1, 77, 77), np.finfo(np.float32).min, np.float32), 1)
    trace = bundle_run.BundleTrace(OUTPUTS, whole=False)
    trace.add("layers", "realistic-0", "mask", mask)
    trace.save(tmp_path / "trace.npz", {})
    with np.load(tmp_path / "trace.npz") as arrays:
        assert np.array_equal(arrays["v0"], mask)
    assert (tmp_path / "trace.npz").stat().st_size < 2048
