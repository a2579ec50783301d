"""`parity target make`: an emulated machine on which runtimes run."""

from __future__ import annotations

import platform
import re
import shlex
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib.metadata import distributions
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from harness.commands.options import HomePath
from harness.core.errors import SpecError
from harness.core.permissions import make_folders
from harness.core.plugins import added
from harness.core.program import run_program
from harness.core.shown import echo
from harness.core.whole_file import writing

if TYPE_CHECKING:
    from harness.core.runtime import Runtime

EMULATOR: Final = "qemu-aarch64-static"
_PACKAGES: Final = ("python3-minimal", "libpython3-stdlib", "libgomp1", "libstdc++6")
_PLATFORMS: Final = ("manylinux2014", "manylinux_2_27", "manylinux_2_28")
# Package lists of another architecture have folders of their own, so nothing that
# belongs to the system changes, and no rights are needed.
_APT: Final = """\
APT::Architecture "{arch}";
APT::Architectures {{ "{arch}"; }};
APT::Sandbox::User "";
Dir::State "{folder}/state";
Dir::State::status "{folder}/status";
Dir::Cache "{folder}/cache";
Debug::NoLocking "1";
"""
_SCRIPT: Final = """\
#!/bin/sh
here=$(dirname "$(readlink -f "$0")")
export PYTHONPATH="$here/packages"
exec {emulator} -cpu {cpu} -L "$here/root" "$here/root/{python}" "$@"
"""
_ASK: Final = """\
import importlib, sys
module = importlib.import_module(sys.argv[1])
print(sys.argv[1], getattr(module, "__version__", "") or module.version())
"""


@click.group()
def target() -> None:
    """Prepare machines other than this one on which runtimes run."""


@target.group("make")
def make() -> None:
    """Make a place where runtimes run, and print its table for parity.toml."""


for _one in added("makes"):
    if isinstance(_one.function, click.Command):
        make.add_command(_one.function)


@make.command("arm64")
@click.option(
    "--cpu",
    default="cortex-a76",
    show_default=True,
    help="The emulated processor; cortex-a53 has no float16 arithmetic.",
)
@click.option(
    "--into",
    default=None,
    type=HomePath(path_type=Path, file_okay=False),
    help="Folder to write to; the default is targets/arm64 in the default store.",
)
@click.option(
    "--root",
    default=None,
    type=HomePath(path_type=Path, exists=True, file_okay=False),
    help="The files of a system of arm64 that has a Python, such as those of a "
    "container; else they are made from packages of Debian.",
)
@click.option(
    "--with",
    "chosen",
    multiple=True,
    metavar="NAME==VERSION",
    help="The version of a runtime, or of numpy, that is put there; the default is the "
    "version that is installed here. Can be given more than once.",
)
def arm64(
    cpu: str, into: Path | None, root: Path | None, chosen: tuple[str, ...]
) -> int:
    """Make an emulated ARM machine, and print its table for parity.toml.

    It takes packages of Debian and wheels of the runtimes that are installed here, and
    needs no rights. A second processor shares the files of the first.
    """
    from filelock import FileLock

    from harness.core.store_root import local_root

    arch = "arm64"
    folder = (into or local_root() / "targets" / arch).absolute()
    wanted = _wanted(chosen)
    with writing(folder.parent, "give another with --into"):
        make_folders(folder.parent)
    # Another command that makes the same machine waits, and then finds it made.
    with (
        FileLock(f"{folder}.lock"),
        tempfile.TemporaryDirectory(dir=folder.parent) as scratch,
    ):
        _make_system(folder, arch, root and root.absolute(), Path(scratch))
        python = _python(folder / "root")
        _put_wheels(folder, arch, python, wanted, Path(scratch))
    script = folder / cpu
    own = folder / EMULATOR
    emulator = f'"$here/{EMULATOR}"' if own.is_file() else EMULATOR
    text = _SCRIPT.format(emulator=emulator, cpu=shlex.quote(cpu), python=python)
    script.write_text(text, encoding="utf-8")
    script.chmod(0o755)
    try:
        run_program([str(script), "-c", ""], f"{cpu} cannot be emulated")
    except SpecError:
        script.unlink()
        raise
    for name, one in _sent().items():
        if name not in wanted:
            continue
        # Each is tried alone, because one that crashes would hide the others.
        try:
            said = run_program(
                [str(script), "-c", _ASK, one.module], "does not run there"
            )
        except SpecError as error:
            said = f"{one.title} {error}"
        for line in said.splitlines():
            echo(f"  {line}")
    echo("next  put this into parity.toml, and the name into `targets`:")
    echo()
    echo(f"[target.{cpu}]")
    echo(f'command = ["{script}"]')
    return 0


def _need_tools() -> None:
    lacking = [name for name in ("apt-get", "dpkg-deb") if not shutil.which(name)]
    if sys.platform != "linux" or lacking:
        msg = (
            "an emulated machine is made from packages of Debian, by "
            f"{' and '.join(lacking) or 'a Linux'}, which {platform.system()} here "
            f"lacks; put {EMULATOR} on PATH and give --root, or give a [target.*] the "
            "command of a container: docker run -i --platform linux/arm64 IMAGE python3"
        )
        raise SpecError(msg)


def _sent() -> dict[str, Runtime]:
    """Return the runtimes that can run on a target, by the name of their wheel."""
    from harness.core.runtime import runtimes

    # The last one is the plain build, which other processors have too.
    return {
        runtime.distributions[-1]: runtime
        for runtime in runtimes().values()
        if runtime.driver
    }


def _wanted(chosen: Sequence[str]) -> dict[str, str]:
    """Return the version of each wheel: as chosen, else as here; empty for any."""
    from packaging.utils import canonicalize_name

    from harness.core.environment import version_of

    sent = _sent()
    wanted = {"numpy": ""}
    for name, one in sent.items():
        if here := version_of(one):
            wanted[name] = here
    known = {canonicalize_name(name): name for name in ("numpy", *sent)}
    for text in chosen:
        name, _, version = text.partition("==")
        if not version or canonicalize_name(name) not in known:
            msg = (
                f"--with {text} is no wheel and its version; write NAME==VERSION, "
                f"where NAME is {', '.join(known.values())}."
            )
            raise SpecError(msg)
        wanted[known[canonicalize_name(name)]] = version
    return wanted


def _make_system(folder: Path, arch: str, root: Path | None, scratch: Path) -> None:
    """Put the files of a system, and perhaps an emulator, into a new folder."""
    if (folder / "root").is_dir():
        if root and (folder / "root").resolve() != root.resolve():
            msg = f"{folder} has another root; give a new folder with --into."
            raise SpecError(msg)
        return
    if folder.exists() and any(folder.iterdir()):
        msg = f"{folder} has other files; give a new folder with --into."
        raise SpecError(msg)
    has_emulator = shutil.which(EMULATOR)
    if not (root and has_emulator):
        _need_tools()
    made = scratch / "made"
    made.mkdir()
    if not has_emulator:
        host = run_program(["dpkg", "--print-architecture"], "dpkg does not answer")
        echo("fetching the emulator (qemu-user-static)")
        for package in _packages(host, ["qemu-user-static"], scratch, alone=True):
            _unpack(package, scratch / "emulator")
        (scratch / "emulator" / "usr" / "bin" / EMULATOR).rename(made / EMULATOR)
    if root:
        _python(root)
        (made / "root").symlink_to(root)
    else:
        echo(f"fetching a Python of {arch}")
        for package in _packages(arch, _PACKAGES, scratch):
            _unpack(package, made / "root")
    # A folder that appears by one rename is whole.
    made.rename(folder)


def _python(root: Path) -> Path:
    """Return the path of the newest Python in a root, below that root."""
    found = [
        path
        for place in ("usr/bin", "usr/local/bin")
        for path in root.joinpath(place).glob("python3.*")
        if re.fullmatch(r"python3\.\d+", path.name)
    ]
    if not found:
        msg = (
            f"{root} has no Python such as usr/bin/python3.11; give --root the files "
            "of a system that has one."
        )
        raise SpecError(msg)
    newest = max(found, key=lambda path: int(path.name.partition(".")[2]))
    return newest.relative_to(root)


def _put_wheels(
    folder: Path, arch: str, python: Path, wanted: Mapping[str, str], scratch: Path
) -> None:
    """Put wheels into a machine's folder, unless it has those versions."""
    from packaging.utils import canonicalize_name

    from harness.engine.environments import at_home, pip_command

    packages, made = folder / "packages", scratch / "packages"
    has = {
        canonicalize_name(distribution.name): distribution.version
        for distribution in distributions(path=[str(packages)])
    }
    if all(
        canonicalize_name(name) in has and one in {"", has[canonicalize_name(name)]}
        for name, one in wanted.items()
    ):
        return
    wheels = [f"{name}=={one}" if one else name for name, one in wanted.items()]
    echo(f"fetching wheels: {', '.join(wheels)}")
    platforms = [f"--platform={name}_aarch64" for name in _PLATFORMS]
    pip = [*pip_command(), "install", "--quiet", "--no-deps"]
    pip += ["--no-compile", "--only-binary=:all:", "--implementation=cp", *platforms]
    pip += [f"--python-version={python.name.removeprefix('python')}"]
    pip += [f"--target={made}", *wheels]
    run_program(pip, f"wheels for {arch} cannot be fetched", at_home())
    with suppress(FileNotFoundError):
        packages.rename(scratch / "old")
    made.rename(packages)


def _packages(
    arch: str, names: Sequence[str], scratch: Path, *, alone: bool = False
) -> list[Path]:
    """Download packages, with what they depend on unless `alone`; return the files."""
    folder = scratch / f"apt-{arch}"
    for below in ("state/lists/partial", "cache/archives/partial"):
        (folder / below).mkdir(parents=True, exist_ok=True)
    (folder / "status").touch()
    settings = folder / "apt.conf"
    settings.write_text(_APT.format(arch=arch, folder=folder), encoding="utf-8")
    apt = ["env", f"APT_CONFIG={settings}", "apt-get", "-q", "-y"]
    why = f"packages of {arch} cannot be had"
    try:
        run_program([*apt, "update"], why)
        if alone:
            run_program([*apt, "download", *names], why, folder / "cache" / "archives")
        else:
            only = ["--download-only", "--no-install-recommends"]
            run_program([*apt, *only, "install", *names], why)
    except SpecError as error:
        msg = f"{error}{_about_sources()}"
        raise SpecError(msg) from None
    found = sorted((folder / "cache" / "archives").glob("*.deb"))
    if not found:
        msg = f"{why}: apt-get downloaded nothing."
        raise SpecError(msg)
    return found


def _about_sources() -> str:
    """Return why a system may have no packages of another processor, or nothing."""
    with suppress(OSError):
        told = platform.freedesktop_os_release()
        if "ubuntu" in {told["ID"], *told.get("ID_LIKE", "").split()}:
            return (
                ". Ubuntu has packages of other processors on servers that its sources "
                "do not name by default; add them there, or give --root the files of "
                "a system, such as those of a container."
            )
    return ""


def _unpack(package: Path, into: Path) -> None:
    run_program(
        ["dpkg-deb", "-x", str(package), str(into)], f"{package.name} is damaged"
    )
