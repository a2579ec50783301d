"""A bundle that is run where the harness is not; its trace is judged here."""

import json
import os
import re
import shutil
import subprocess
import sys
import zipfile

import numpy as np
import onnxruntime
import pytest

from harness.core.digest import digest_value
from tests.bombs import add_zeros, measured, npy
from tests.plugin.project import LIMIT_S, PARITY, write_project

CASES = ("vae_decoder/onnxruntime/fp32", "vae_decoder/mnn/fp32")


def bundled(project, case, *options):
    """Make a bundle, and run it with nothing but numpy and the runtime."""
    project.parity("bundle", case, "--out", "bundle", *options).check(0)

    assert len((project.path / "bundle" / "README.md").read_text().splitlines()) == 2
    ran = subprocess.run(
        [sys.executable, "-I", "run.py", "--name", "box", "--out", "../trace.npz"],
        cwd=project.path / "bundle",
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    return project.path / "trace.npz"


def rows(project):
    return {case["case"]: case["rows"] for case in project.report["cases"]}


@pytest.fixture(scope="module")
def traced(passing, tmp_path_factory):  # noqa: ARG001  # it fills the store
    """A project with a trace of one case."""
    project = write_project(tmp_path_factory.mktemp("traced") / "project")
    bundled(project, CASES[0])
    return project


@pytest.mark.parametrize("case", CASES)
def test_a_trace_is_judged_as_a_run_here_to_the_bit(project, passing, case):
    bundled(project, case)
    project.parity("judge", "trace.npz").check(0, f"✓ {case}@box")
    assert rows(project)[f"{case}@box"] == rows(passing[0])[case]
    assert ["trace", "trace.npz"] in project.report["cases"][0]["ran"]["detail"]


def test_statistics_alone_give_the_same_verdict(project):
    bundled(project, CASES[1], "--layers", "stats")
    trace = project.path / "trace.npz"

    assert project.parity("judge", "trace.npz").code == 0
    project.tighten()
    ended = project.parity("judge", "trace.npz")
    local = project.parity("run", CASES[1])

    assert ended.code == local.code == 1
    first = [
        one.text.split("first diverges at ")[1].split()[0] for one in (ended, local)
    ]
    assert first[0] == first[1]
    assert "parity explain" not in ended.text
    assert trace.stat().st_size < 2**20


def test_a_trace_of_other_settings_is_refused(traced, tmp_path):
    own = traced.branch(tmp_path / "other")
    own.change(
        "parity.toml", "[backend.onnxruntime]", "[backend.onnxruntime]\nthreads = 1"
    )

    own.parity("judge", "trace.npz").check(
        2,
        "trace.npz was made with threads = 2, and the suite has 1 now",
        "make the bundle again with `parity bundle`",
    )


def test_traces_of_two_devices_make_one_table_and_one_page(traced, tmp_path):
    with_about(traced, tmp_path / "phone.npz", name="phone")
    own = traced.branch(tmp_path / "two")

    ended = own.parity("judge", "trace.npz", str(tmp_path / "phone.npz"))

    both = [f"{CASES[0]}@box", f"{CASES[0]}@phone"]
    assert [one for one in both if ended.has(f"✓ {one}")] == both, ended.text
    assert list(rows(own)) == both
    page = own.reports[0].with_suffix(".html").read_text()
    columns = re.findall('<th scope="col">(fp32[^<]*)</th>', page)
    assert columns[:2] == ["fp32@box", "fp32@phone"]


def test_two_traces_of_one_device_are_refused(traced):
    traced.parity("judge", "trace.npz", "trace.npz").check(
        2, f"two traces are {CASES[0]}@box; give run.py another --name"
    )


@pytest.mark.parametrize("by", ["option", "trace"])
def test_a_device_that_is_called_as_a_precision_is_refused(traced, tmp_path, by):
    """The case fp32@low would be that of low precision here."""
    words = ("--name", "low")
    path = traced.path / "trace.npz"
    if by == "trace":
        path, words = tmp_path / "low.npz", ()
        with_about(traced, path, name="low")

    traced.parity("judge", str(path), *words).check(
        2, "a target cannot be called 'low', because that is a word of ids"
    )


def with_about(project, path, **changes):
    """Write a copy of the trace that says something else about itself."""
    with np.load(project.path / "trace.npz") as arrays:
        kept = dict(arrays)
    about = json.loads(kept["about"].tobytes()) | changes
    kept["about"] = np.frombuffer(json.dumps(about).encode(), np.uint8)
    np.savez(path, **kept)


def truncated(project, path):
    path.write_bytes((project.path / "trace.npz").read_bytes()[:5000])


def lacking(project, path):
    with np.load(project.path / "trace.npz") as arrays:
        kept = dict(arrays)
    del kept["v0"]
    np.savez(path, **kept)


BROKEN = {
    "truncated": (truncated, "is no trace, or is damaged"),
    "no object": (
        lambda _, path: np.savez(path, about=np.frombuffer(b"[]", np.uint8)),
        "is no trace, or is damaged",
    ),
    "values missing": (lacking, "lacks 1 of its values; copy the file again"),
    "another suite": (
        lambda project, path: with_about(project, path, case="unet/mnn/fp32"),
        "is a trace of unet/mnn/fp32, and",
    ),
    "another model": (
        lambda project, path: with_about(
            project, path, entries=[], files={"model": digest_value("other")}
        ),
        "was made with another model.onnx than the suite deploys now",
    ),
    "another format": (
        lambda project, path: with_about(project, path, format=0),
        "has format 0, and this harness reads 1",
    ),
    "other inputs": (
        lambda project, path: with_about(
            project, path, samples={"realistic-0": "other"}
        ),
        "has no outputs for these inputs",
    ),
}


# numpy leaves a truncated .npz file open.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("how", BROKEN)
def test_a_trace_that_cannot_be_judged_is_a_sentence_and_2(traced, tmp_path, how):
    write, words = BROKEN[how]
    write(traced, tmp_path / "broken.npz")
    traced.parity("judge", str(tmp_path / "broken.npz")).check(2, words)


def about_of(project):
    with np.load(project.path / "trace.npz") as arrays:
        return json.loads(arrays["about"].tobytes())


def in_values(**changes):
    """Write a trace that says something else about its first value."""

    def write(project, path):
        first, *rest = about_of(project)["values"]
        with_about(project, path, values=[first | changes, *rest])

    return write


def about_is(text):
    return lambda _, path: np.savez(path, about=np.frombuffer(text, np.uint8))


WRONG = {
    "a number for a name": in_values(name=1),
    "a kind": in_values(kind="other"),
    "an axis below 0": in_values(shape=[-1]),
    "a shape without end": in_values(shape=[2**40, 2**40]),
    "another shape": in_values(shape=[1, 2]),
    "a size that is no number": in_values(shape=["x"]),
    "a dtype that is no number": in_values(dtype="|O"),
    "text for a list": lambda project, path: with_about(project, path, samples="x"),
    "a setting": lambda project, path: with_about(
        project, path, settings={"device": "cpu", "threads": "many"}
    ),
    "a long log": lambda project, path: with_about(project, path, log="x" * 2**20),
    "too deep": about_is(b"[" * 10**5),
    "no text": about_is(b"\xff\xfe"),
    "a number without end": about_is(b'{"format": 1e999}'),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_trace_of_another_form_is_a_sentence_and_2(traced, tmp_path, what):
    WRONG[what](traced, tmp_path / "wrong.npz")
    traced.parity("judge", str(tmp_path / "wrong.npz")).check(
        2, "wrong.npz is no trace, or is damaged ("
    )


def test_a_pipe_in_the_place_of_a_trace_is_a_sentence(traced, tmp_path):
    os.mkfifo(tmp_path / "pipe.npz")
    traced.parity("judge", str(tmp_path / "pipe.npz")).check(2, "it is no plain file")


def test_what_else_a_trace_says_reaches_nobody(traced, tmp_path):
    with_about(traced, tmp_path / "more.npz", trace="/etc/passwd", command=["rm"])
    traced.parity("judge", str(tmp_path / "more.npz")).check(0, f"✓ {CASES[0]}@box")


def large_about(project, path):
    del project
    with zipfile.ZipFile(path, "w") as file:
        add_zeros(file, "about", (2**33,), "|u1")


def large_output(project, path):
    """Write a trace that also says so, as one of a healthy file would."""
    in_values(shape=[2**30], dtype="<f4")(project, path)
    replaced(path, "v0", lambda file: add_zeros(file, "v0", (2**30,)))


def declared(project, path):
    in_values(shape=[2**45])(project, path)
    replaced(path, "v0", lambda file: file.writestr("v0.npy", npy((2**45,))))


def replaced(path, name, write):
    """Write another array into a trace, in the place of one that it has."""
    with zipfile.ZipFile(path) as old:
        kept = {one: old.read(one) for one in old.namelist() if one != f"{name}.npy"}
    with zipfile.ZipFile(path, "w") as file:
        for one, content in kept.items():
            file.writestr(one, content)
        write(file)


def large_dump(project, path):
    del project
    with zipfile.ZipFile(path, "w") as file:
        add_zeros(file, "sample", (2**29,))


def large_layer(project, path):
    shutil.copy(project.path / "trace.npz", path)
    with np.load(path) as arrays:
        sample = arrays["v0"]
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("sample.npy", npy(sample.shape, data=sample.tobytes()))
        add_zeros(file, "layer", (2**31,))


def declared_dump(project, path):
    del project
    path.mkdir()
    (path / "sample.npy").write_bytes(npy((2**45,)))


OF = ("--case", CASES[0])
LARGE = {
    "about": (large_about, (), "and 33,554,432 bytes are read"),
    "an output": (large_output, (), "in the shape [1073741824] for realistic-0"),
    "an output that is declared": (declared, (), "in the shape [35184372088832]"),
    "a dump's output": (large_dump, OF, "the array 'sample': it declares"),
    "a dump's layer": (large_layer, OF, "its arrays have 8,5"),
    "a dump's output that is declared": (declared_dump, OF, "sample.npy: it declares"),
}


@pytest.mark.parametrize("what", LARGE)
def test_values_without_end_are_a_sentence_and_no_memory(traced, tmp_path, what):
    write, options, words = LARGE[what]
    write(traced, tmp_path / "large.npz")
    command = (*PARITY, "judge", tmp_path / "large.npz", *options)
    code, text, memory = measured(command, traced.path)
    assert code == 2, text
    assert words in text
    assert len(text.splitlines()) == 1
    assert memory < 512 << 20


def test_what_lies_beside_a_bundle_is_not_imported(traced, tmp_path):
    folder = tmp_path / "bundle"
    shutil.copytree(traced.path / "bundle", folder)
    for name in ("numpy", "__future__", "argparse", "typing", "onnxruntime", "json"):
        (folder / f"{name}.py").write_text("open('seen', 'a').write(__name__)\n")
    subprocess.run([sys.executable, "run.py"], cwd=folder, check=True)
    assert (folder / "trace.npz").is_file()
    assert not (folder / "seen").exists()


@pytest.fixture(scope="module")
def output(traced):
    """What somebody's own call of the same file gives."""
    with np.load(traced.path / "trace.npz") as arrays:
        about = json.loads(arrays["about"].tobytes())
        (key,) = (v["array"] for v in about["values"] if v["kind"] == "outputs")
        return arrays[key]


def early(value, _):
    value = value.copy()
    value.reshape(-1)[value.size * 2 // 3 :] = 0
    return value


@pytest.fixture(scope="module")
def unset(traced):
    """What the file gives to a call that set no input."""
    with np.load(traced.path / "bundle" / "feeds.npz") as feeds:
        latent = feeds["realistic-0/latent_sample"]
    session = onnxruntime.InferenceSession(traced.path / "bundle/model-0/model.onnx")
    (made,) = session.run(["sample"], {"latent_sample": np.zeros_like(latent)})
    return made


CALLS = {
    "right": (lambda value, _: value, 0, "1 of 1 case agrees"),
    "layout": (
        lambda value, _: value.transpose(0, 2, 3, 1),
        1,
        "its axes are axes 0, 2, 3, 1 of PyTorch's value: NHWC in place of NCHW",
    ),
    "buffer in another layout": (
        lambda value, _: value.transpose(0, 2, 3, 1).reshape(value.shape),
        1,
        "the app keeps its outputs in another memory",
    ),
    "read too early": (early, 1, "it was read before all of it was written"),
    "not read": (
        lambda value, _: np.zeros_like(value),
        1,
        "every value is 0: nothing was written",
    ),
    "input not set": (
        lambda _, unset: unset,
        1,
        "it is what the file gives with 'latent_sample' = 0: that input was not set",
    ),
}


def folder_of(folder, arrays):
    (folder / "dump").mkdir()
    for name, value in arrays.items():
        np.save(folder / "dump" / f"{name}.npy", value)
    return folder / "dump"


def npz_of(folder, arrays):
    np.savez(folder / "dump.npz", **arrays)
    return folder / "dump.npz"


@pytest.mark.parametrize("how", CALLS)
def test_what_is_wrong_with_a_call_is_said(traced, output, unset, tmp_path, how):
    call, code, words = CALLS[how]
    dump = folder_of(tmp_path, {"result": np.ascontiguousarray(call(output, unset))})
    (tmp_path / "names.toml").write_text('result = "sample"\n')
    names = ("--names", str(tmp_path / "names.toml"))
    traced.parity("judge", str(dump), "--case", CASES[0], *names).check(code, words)


@pytest.mark.parametrize("dumped", [folder_of, npz_of])
def test_a_dump_with_layers_names_the_first_that_is_wrong(traced, tmp_path, dumped):
    with np.load(traced.path / "trace.npz") as arrays:
        values = json.loads(arrays["about"].tobytes())["values"]
        layers = [v["name"] for v in values if v["kind"] == "layers"]
        has = {v["name"]: arrays[v["array"]] for v in values}
    wrong = layers[len(layers) // 2 :]
    dump = dumped(tmp_path, has | {name: 1.1 * has[name] for name in wrong})
    own = traced.branch(tmp_path / "own")

    own.parity("judge", str(dump), "--case", CASES[0]).check(1)

    first = {one["id"]: one["first_divergence"] for one in own.report["verdicts"]}
    assert first[f"{CASES[0]}@dump/layers"] == wrong[0]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ((), "say which case it is with --case"),
        (("--case", CASES[0]), "lacks the output 'sample' of vae_decoder"),
        (("--case", "vae_decoder"), "this takes one case of a component"),
        (("--case", CASES[0], "--names", "no.toml"), "no.toml cannot be read as TOML"),
    ],
    ids=["no case", "no output", "several cases", "no names"],
)
def test_a_dump_that_cannot_be_judged_is_2(traced, output, tmp_path, options, words):
    np.save(tmp_path / "result.npy", output)
    traced.parity("judge", str(tmp_path), *options).check(2, words)


@pytest.mark.parametrize("name", ["result.npy", "result.npz"])
def test_one_array_is_no_dump(traced, output, tmp_path, name):
    with (tmp_path / name).open("wb") as file:
        np.save(file, output)
    traced.parity("judge", str(tmp_path / name), "--case", CASES[0]).check(
        2, "it is a folder of .npy files, or an .npz file"
    )


def test_a_dump_without_a_sample_says_how_to_name_it(traced, output, tmp_path):
    (tmp_path / "mine").mkdir()
    np.save(tmp_path / "mine" / "sample.npy", output)
    traced.parity("judge", str(tmp_path), "--case", CASES[0]).check(
        2,
        f"{tmp_path} has the samples ['mine']",
        "call its folders like the samples that it has",
    )


def test_a_dump_with_a_sample_of_another_name_is_refused(traced, output, tmp_path):
    for folder, value in (("realistic-0", output), ("realistic_1", 0 * output)):
        (tmp_path / folder).mkdir()
        np.save(tmp_path / folder / "sample.npy", value)
    traced.parity("judge", str(tmp_path), "--case", CASES[0]).check(
        2,
        f"{tmp_path} has the samples ['realistic-0', 'realistic_1']",
        "call its folders like the samples that it has",
    )


def test_the_samples_that_a_dump_lacks_are_named(traced, output, tmp_path):
    dump = folder_of(tmp_path, {"sample": output})
    own = traced.branch(tmp_path / "own")
    own.change("parity.toml", "realistic = 1", "realistic = 2")
    own.parity("judge", str(dump), "--case", CASES[0]).check(
        0, f"has no values of realistic-1, so {CASES[0]} is judged on the other samples"
    )


def test_a_dump_with_two_arrays_for_one_output_is_refused(traced, output, tmp_path):
    """The harness cannot know which of them is the output."""
    dump = folder_of(tmp_path, {"mine": 0 * output, "sample": output})
    (tmp_path / "names.toml").write_text('mine = "sample"\n')
    names = ("--names", str(tmp_path / "names.toml"))
    traced.parity("judge", str(dump), "--case", CASES[0], *names).check(
        2, "two arrays that are 'sample' of realistic-0, 'mine' and 'sample'"
    )


def test_a_folder_that_is_there_is_kept(traced):
    traced.parity("bundle", CASES[0], "--out", "bundle").check(
        2, "bundle is there already; give another with --out"
    )
