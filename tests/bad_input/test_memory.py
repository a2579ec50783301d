"""Too little memory is said before a stage starts, and ahead of a run if asked."""

import json

import pytest

from tests.bad_input.conftest import VAE, write_checkpoint


@pytest.fixture(scope="module")
def refused(new_project):
    project = new_project()
    project.write("vae_decoder", more="memory_gib = 0.1")
    return project, project.run()


def test_a_run_that_cannot_fit_could_not_tell_and_names_the_stage(refused):
    project, ended = refused

    assert ended.code == 2
    assert set(project.outcomes().values()) == {"memory"}
    said = project.reason("vae_decoder/mnn/fp32/outputs")
    assert said.startswith("exporting vae_decoder and recording its reference")
    assert "0.1 GiB are allowed" in said
    assert "memory_gib" in said


def test_nothing_was_made(refused):
    project, _ = refused

    assert list(project.store.glob("v1/onnx/*")) == []


@pytest.mark.parametrize(
    "arguments",
    [
        ("explain", "vae_decoder/mnn/fp32"),
        ("repro", "vae_decoder/mnn/fp32"),
        ("ranges",),
    ],
    ids=lambda arguments: arguments[0],
)
def test_no_other_command_takes_more_than_the_suite_allows(refused, arguments):
    project, _ = refused
    command, *case = arguments

    ended = project.run(*case, command=command)

    assert ended.code == 2
    assert "0.1 GiB are allowed" in ended.said


def test_the_forecast_is_told_ahead(refused):
    project, _ = refused

    ended = project.run("--forecast")

    assert ended.code == 0
    assert "0.1 GiB allowed" in ended.said
    assert "vae_decoder/mnn/fp32" in ended.said
    assert "does not fit" in ended.said


def test_a_network_that_cannot_be_counted_is_refused_and_no_count_is_kept(empty):
    odd = VAE | {"norm_num_groups": 3}  # of 8 channels
    folder = write_checkpoint(empty.folder / "odd", vae=odd)
    empty.write(
        "vae_decoder", source=f"checkpoint = {json.dumps(str(folder))}\nseed = 0"
    )

    ended = empty.run()

    assert ended.code == 2
    said = empty.reason("vae_decoder/mnn/fp32/outputs")
    assert said.startswith("vae_decoder: counting weights: ValueError")
    assert "divisible" in said
    assert list(empty.store.glob("v1/weights/*")) == []
