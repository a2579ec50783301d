"""Write recorded calls to a folder: data alone, and a suite that names the modules."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from harness.core.case import LIVE
from harness.core.errors import SpecError, SuiteError
from harness.core.whole_file import writing
from harness.plugins.capture.calls import Calls
from harness.plugins.capture.checkpoints import record_checkpoint
from harness.plugins.capture.forms import LIBRARIES, CallForm, forms_of, name_of
from harness.plugins.capture.suites import (
    TEST_FILE,
    CheckSettings,
    Part,
    relative,
    rounded_in,
    write_texts,
)
from harness.recipes.calls import FILE, WEIGHTS, read_captured, write_captured
from harness.recipes.captured import weights_of
from harness.suite.suite import load_suite

if TYPE_CHECKING:
    import torch

NETWORK: Final = "network"
"""Folder of the configuration and the weights of a network of a known library."""


def save_suite(
    calls: Calls, folder: str | Path, choice: CheckSettings, modules: Mapping[str, str]
) -> None:
    """Write the suite of recorded calls into a new or empty folder.

    Raises:
        ParityError: The folder is not empty or cannot be written, or nothing says how a
            module is made.

    """
    if choice.patch.startswith(LIVE):
        msg = (
            "the patch is a function of this process; put it into a module, and give "
            'its name: check(..., patch="my_patches:real_rotary").'
        )
        raise SpecError(msg)
    with _filled(Path(folder)) as beside:
        parts = write_calls(calls, beside / "captured", modules)
        own = any(part.folder for part in parts)
        choice = replace(choice, checkpoint="captured" if own else "")
        (beside / "test_parity.py").write_text(TEST_FILE, encoding="utf-8")
        suite = write_texts(beside, parts, choice)
        load_suite(suite)  # what its own reader refuses is not left behind


def save_calls(calls: Calls, folder: str | Path, modules: Mapping[str, str]) -> None:
    """Write recorded calls, of which `parity init` makes a suite.

    Raises:
        ParityError: As of `save_suite`.

    """
    with _filled(Path(folder)) as beside:
        write_calls(calls, beside, modules, must_name=False)


def write_calls(
    calls: Calls,
    folder: Path,
    modules: Mapping[str, str],
    *,
    must_name: bool = True,
) -> list[Part]:
    """Write a folder for each form of each module's calls; return the components.

    A network of a known library is written beside its calls, and so are the weights of
    a class that is made without arguments.

    Raises:
        SpecError: Nothing says how a module is made, and `must_name` asks for that.

    """
    for name in modules:
        if name not in calls:
            msg = f"there is no module {name!r}; there are {', '.join(calls)}."
            raise SpecError(msg)
    parts: list[Part] = []
    for name, one in calls.items():
        for own, form in forms_of(one)[0].items():
            write_captured(folder / own, form.captured, form.tensors)
            module = modules.get(name, "") or one.given
            beside = "" if module else _written(one.module, folder / own)
            if beside:
                module = name_of(one.module)
            if must_name and not module:
                cls = type(one.module).__qualname__
                msg = (
                    f"{name}: nothing says how a {cls} is made again. Write a function "
                    "without arguments that returns the module, and give its name: "
                    f'save(folder, {name}="my_project.nets:make").'
                )
                raise SpecError(msg)
            part = Part(
                name=own,
                module=module,
                form=form,
                folder=f"{own}/{NETWORK}" if beside == NETWORK else "",
                rounded=rounded_in(one.module),
            )
            parts.append(part)
    return parts


def _written(module: torch.nn.Module, folder: Path) -> str:
    """Write what makes a module again; return which part of a folder has it, or "".

    A class of this process alone cannot be named, and one that takes arguments cannot
    be made.
    """
    from harness.recipes.methods import called_by

    network, called = called_by(module)
    cls = type(network)
    top = cls.__module__.partition(".")[0]
    if top in LIBRARIES and hasattr(network, "save_pretrained"):
        network.save_pretrained(folder / NETWORK, safe_serialization=True)
        return NETWORK
    if cls.__module__ == "__main__" or called != "forward":
        return ""
    try:
        again = cls()
    except Exception:  # noqa: BLE001  # a class may raise anything
        return ""
    if weights_of(again) != weights_of(network):
        return ""
    from safetensors.torch import save_model

    save_model(network, str(folder / WEIGHTS))
    return WEIGHTS


@contextmanager
def _filled(folder: Path) -> Iterator[Path]:
    """Yield an empty folder that takes the place of `folder`, if nothing fails.

    Raises:
        SuiteError: The folder has something in it, or cannot be written.

    """
    folder = folder.absolute()
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        msg = f"{folder} is there already; give a new or an empty folder."
        raise SuiteError(msg)
    with writing(folder, "give another folder"):
        folder.parent.mkdir(parents=True, exist_ok=True)
        beside = Path(tempfile.mkdtemp(dir=folder.parent, prefix=".parity-save-"))
    try:
        yield beside
        with writing(folder, "give another folder"):
            if folder.is_dir():
                folder.rmdir()
            beside.chmod(0o777 & ~_umask())
            beside.rename(folder)
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def _umask() -> int:
    now = os.umask(0)
    os.umask(now)
    return now


def init_suite(
    given: Path,
    into: Path,
    modules: Mapping[str, str],
    *,
    force: bool,
) -> list[Path]:
    """Write a suite for recorded calls, or for a checkpoint that no recipe knows.

    Args:
        given: A folder of recorded calls, or the checkpoint.
        into: The folder to write to.
        modules: For a component's name, where its module comes from.
        force: Whether files that are there are written over.

    Returns:
        The files that were written.

    Raises:
        ParityError: Something is missing, cannot be read, or is there already.

    """
    names = ("parity.toml", "tolerances.toml", "test_parity.py", "captured")
    there = [name for name in names if (into / name).exists()]
    there = [name for name in there if (into / name).resolve() != given.resolve()]
    if there and not force:
        msg = (
            f"{into} has {', '.join(there)} already; use --force to write over, or "
            "give another folder."
        )
        raise SuiteError(msg)
    with writing(into, "give another with --into"):
        into.mkdir(parents=True, exist_ok=True)
        beside = Path(tempfile.mkdtemp(dir=into, prefix=".parity-init-"))
    try:
        if captured_in(given):
            parts = parts_in(given, modules)
            home, where = given, relative(given, into)
        else:
            parts = _parts_of_checkpoint(given, beside / "captured", modules)
            home, where = given, "captured"
        own = any(part.folder for part in parts)
        choice = CheckSettings(checkpoint=relative(home, into) if own else "")
        (beside / "test_parity.py").write_text(TEST_FILE, encoding="utf-8")
        write_texts(beside, parts, choice, where)
        with writing(into, "give another with --into"):
            for path in sorted(beside.iterdir()):
                if path.is_dir() and (into / path.name).exists():
                    shutil.rmtree(into / path.name)
                path.replace(into / path.name)
    finally:
        shutil.rmtree(beside, ignore_errors=True)
    load_suite(into / "parity.toml")
    return [into / name for name in names if (into / name).exists()]


def _parts_of_checkpoint(
    checkpoint: Path, folder: Path, modules: Mapping[str, str]
) -> list[Part]:
    """Record a checkpoint's networks into a folder, and return the components."""
    calls, folders = record_checkpoint(checkpoint)
    parts: list[Part] = []
    for name, one in calls.items():
        for own, form in forms_of(one)[0].items():
            write_captured(folder / own, form.captured, form.tensors)
            part = Part(
                name=own,
                module=modules.get(name) or name_of(one.module),
                form=form,
                folder=folders[name] or ".",
                rounded=rounded_in(one.module),
            )
            parts.append(part)
    return parts


def captured_in(folder: Path) -> list[Path]:
    """Return the folders of recorded calls that a folder has, or is."""
    if (folder / FILE).is_file():
        return [folder]
    return sorted(path.parent for path in folder.glob(f"*/{FILE}"))


def parts_in(folder: Path, modules: Mapping[str, str]) -> list[Part]:
    """Return the components of recorded calls that lie in a folder.

    What a file says about its module is a hint for the reader: only a class of a known
    library is taken from there.

    Raises:
        SuiteError: Nothing else says where a module comes from, or a file is damaged.

    """
    parts = []
    for path in captured_in(folder):
        captured = read_captured(path)
        name, module = path.name, modules.get(path.name, "")
        has_network = (path / NETWORK / "config.json").is_file()
        top = captured.module.partition(":")[0]
        if not module and has_network and top in LIBRARIES:
            module = captured.module
        if not module:
            msg = (
                f"{path}: its calls are of {captured.module}, and nothing says how "
                f"that is made; add --module {name}=my_project.nets:make, a function "
                "without arguments that returns the module."
            )
            raise SuiteError(msg)
        form = CallForm(captured=captured, tensors={})
        own = f"{name}/{NETWORK}" if has_network and not modules.get(name) else ""
        parts.append(Part(name=name, module=module, form=form, folder=own))
    return parts
