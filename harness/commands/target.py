"""`parity target make`: an emulated machine on which runtimes run."""

from __future__ import annotations

import platform
import shlex
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from harness.core.errors import SpecError
from harness.core.program import run_program

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
exec {emulator} -cpu {cpu} -L "$here/root" "$here/root/usr/bin/{python}" "$@"
"""
_ASK: Final = """\
import importlib, sys
module = importlib.import_module(sys.argv[1])
print(sys.argv[1], getattr(module, "__version__", "") or module.version())
"""


@click.group()
def target() -> None:
    """Prepare machines other than this one on which runtimes run."""


@target.command("make")
@click.argument("arch", type=click.Choice(["arm64"]))
@click.option(
    "--cpu",
    default="cortex-a76",
    show_default=True,
    help="The emulated processor; cortex-a53 has no float16 arithmetic.",
)
@click.option(
    "--into",
    default=None,
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder to write to; the default is targets/ARCH in the default store.",
)
def make(arch: str, cpu: str, into: Path | None) -> int:
    """Make an emulated machine, and print its table for parity.toml.

    It takes packages of Debian and wheels of the runtimes that are installed here, and
    needs no rights. A second processor shares the files of the first.
    """
    from harness.engine.store import default_root

    folder = (into or default_root() / "targets" / arch).absolute()
    if not (folder / "root").is_dir():
        if folder.exists() and any(folder.iterdir()):
            msg = f"{folder} has other files; give a new folder with --into."
            raise SpecError(msg)
        _need_tools()
        try:
            folder.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            msg = f"{folder.parent} cannot be made ({error.strerror}); use --into."
            raise SpecError(msg) from error
        with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
            made = Path(scratch, "made")
            made.mkdir()
            _fill(made, arch, Path(scratch))
            made.rename(folder)
    script = folder / cpu
    (python,) = (folder / "root" / "usr" / "bin").glob("python3.[0-9]*")
    own = folder / EMULATOR
    emulator = f'"$here/{EMULATOR}"' if own.is_file() else EMULATOR
    text = _SCRIPT.format(emulator=emulator, cpu=shlex.quote(cpu), python=python.name)
    script.write_text(text, encoding="utf-8")
    script.chmod(0o755)
    try:
        run_program([str(script), "-c", ""], f"{cpu} cannot be emulated")
    except SpecError:
        script.unlink()
        raise
    for one in _sent():
        # Each is tried alone, because one that crashes would hide the others.
        try:
            said = run_program(
                [str(script), "-c", _ASK, one.module], "does not run there"
            )
        except SpecError as error:
            said = f"{one.title} {error}"
        for line in said.splitlines():
            click.echo(f"  {line}")
    click.echo("next  put this into parity.toml, and the name into `targets`:")
    click.echo(f'\n[target.{cpu}]\ncommand = ["{script}"]')
    return 0


def _need_tools() -> None:
    lacking = [name for name in ("apt-get", "dpkg-deb") if not shutil.which(name)]
    if sys.platform != "linux" or lacking:
        msg = (
            "an emulated machine is made from packages of Debian, by "
            f"{' and '.join(lacking) or 'a Linux'}, which {platform.system()} here "
            "lacks; give a [target.*] the command of a container in its place: docker "
            "run -i --platform linux/arm64 IMAGE python3"
        )
        raise SpecError(msg)


def _sent() -> list[Runtime]:
    """Return the runtimes that can run on a target and are installed here."""
    from harness.core.runtime import runtimes

    return [one for one in runtimes().values() if one.driver and one.is_installed]


def _fill(folder: Path, arch: str, scratch: Path) -> None:
    """Put a root with a Python, the wheels and perhaps an emulator into a folder."""
    if not shutil.which(EMULATOR):
        host = run_program(
            ["dpkg", "--print-architecture"], "dpkg does not answer"
        ).strip()
        click.echo("fetching the emulator (qemu-user-static)")
        for package in _packages(host, ["qemu-user-static"], scratch, alone=True):
            _unpack(package, scratch / "emulator")
        (scratch / "emulator" / "usr" / "bin" / EMULATOR).rename(folder / EMULATOR)
    click.echo(f"fetching a Python of {arch}")
    for package in _packages(arch, _PACKAGES, scratch):
        _unpack(package, folder / "root")
    (python,) = (folder / "root" / "usr" / "bin").glob("python3.[0-9]*")
    wheels = ["numpy", *_wheels()]
    click.echo(f"fetching wheels: {', '.join(wheels)}")
    platforms = [f"--platform={name}_aarch64" for name in _PLATFORMS]
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps"]
    pip += ["--no-compile", "--only-binary=:all:", "--implementation=cp", *platforms]
    pip += [f"--python-version={python.name.removeprefix('python')}"]
    pip += [f"--target={folder / 'packages'}", *wheels]
    run_program(pip, f"there are no such wheels for {arch}")


def _wheels() -> Iterator[str]:
    """Yield the requirement of each runtime, of the version that is installed here."""
    for one in _sent():
        for name in one.distributions:
            with suppress(PackageNotFoundError):
                # The last one is the plain build, which other processors have too.
                yield f"{one.distributions[-1]}=={version(name)}"
                break


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
    run_program([*apt, "update"], why)
    if alone:
        run_program([*apt, "download", *names], why, folder / "cache" / "archives")
    else:
        only = ["--download-only", "--no-install-recommends"]
        run_program([*apt, *only, "install", *names], why)
    found = sorted((folder / "cache" / "archives").glob("*.deb"))
    if not found:
        msg = f"{why}: apt-get downloaded nothing."
        raise SpecError(msg)
    return found


def _unpack(package: Path, into: Path) -> None:
    run_program(
        ["dpkg-deb", "-x", str(package), str(into)], f"{package.name} is damaged"
    )
