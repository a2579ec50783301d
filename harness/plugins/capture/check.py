"""`harness.check`: from a live module to a verdict, by the engine of a suite."""

from __future__ import annotations

import html
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.core.case import check_name
from harness.core.errors import SpecError
from harness.core.outcome import PARITY
from harness.core.text import Line, screen
from harness.plugins.capture.calls import Calls
from harness.plugins.capture.forms import forms_of
from harness.plugins.capture.live import keep
from harness.plugins.capture.modules import made_of, recorded
from harness.plugins.capture.suites import CheckSettings, Part, rounded_in, write_suite
from harness.recipes.nested import class_of, classes_in

if TYPE_CHECKING:
    import torch

    from harness.commands.session import RunSession
    from harness.engine.run import Asked
    from harness.judge.case import CaseVerdict


@dataclass(frozen=True, kw_only=True, repr=False)
class CheckVerdict:
    """Whether the files made from a module compute what the module computes.

    Attributes:
        code: 0 for parity, 1 for no parity, 2 where that could not be told.
        lines: What `parity run` prints of the same cases.
        verdicts: The verdict on each check of each case.
        run: The run's folder, for `parity show`, `explain` and `repro`.

    """

    code: int
    lines: tuple[Line, ...]
    verdicts: tuple[CaseVerdict, ...]
    run: Path
    calls: Calls = field(compare=False)
    choice: CheckSettings = field(compare=False)

    @property
    def passed(self) -> bool:
        """Whether every value of every case agrees."""
        return self.code == PARITY

    def __str__(self) -> str:
        """Return the lines that `parity run` prints."""
        return "\n".join(line.text for line in screen(self.lines))

    __repr__ = __str__

    def _repr_html_(self) -> str:
        """Return the table of cases for a notebook, and the lines below it."""
        rows = "".join(
            f"<tr><td>{html.escape(one.case)}</td><td>{html.escape(one.what)}</td>"
            f"<td>{html.escape(str(one.outcome))}</td>"
            f"<td style='text-align:left'>{html.escape(one.reason)}</td></tr>"
            for one in self.verdicts
        )
        head = "".join(
            f"<th>{name}</th>" for name in ("case", "check", "outcome", "why")
        )
        return (
            f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
            f"<pre>{html.escape(str(self))}</pre>"
        )

    def require(self) -> None:
        """Fail a test unless every case agrees.

        Raises:
            AssertionError: One does not. Its text is the verdict's.

        """
        __tracebackhide__ = True
        if not self.passed:
            raise AssertionError(str(self))

    def save(self, folder: str | Path, **modules: str) -> None:
        """Write the suite that gives the same cases, which `parity run` runs.

        Args:
            folder: A new or empty folder.
            **modules: For a component's name, where its module comes from, as in
                ``"my_project.nets:make"``. A class of diffusers, of transformers, or
                one that is made without arguments, needs none.

        Raises:
            ParityError: Nothing says how a module is made, or the folder is not empty.

        """
        from harness.plugins.capture.saved import save_suite

        save_suite(self.calls, folder, self.choice, modules)


def check(
    module: torch.nn.Module | str | Calls,
    inputs: Any = None,
    *,
    runtimes: Sequence[str] = (),
    variants: Sequence[str] | Mapping[str, Sequence[str]] = (),
    dynamic_shapes: Any = None,
    exporter: str = "",
    opset: int = 0,
    optimize: bool | None = None,
    patch: Any = "",
    tier: str = "",
    tolerance: Mapping[str, float] | None = None,
    seeds: int = 0,
    name: str = "",
    store: str = "",
    runs: str = "",
) -> CheckVerdict:
    """Export a module, run its files, and compare every value with PyTorch's.

    Args:
        module: Any `torch.nn.Module` in eval mode on the CPU; or its name, as in
            ``"my_project.nets:make"``; or the recorded calls of `harness.capture`.
        inputs: A tuple or a dict as ``forward`` takes them, or a list of such calls.
            Tuples, lists, dicts, data classes, numbers, texts and None may be nested
            around tensors.
        runtimes: Names of runtimes; the default is those of a first suite.
        variants: Names of variants for every runtime, or by runtime; the default is
            ``fp32``.
        dynamic_shapes: The open axes, as `torch.export.export` takes them.
        exporter: As in parity.toml.
        opset: As in parity.toml.
        optimize: As in parity.toml.
        patch: A function of the network, or its name. It changes the copy that is
            exported.
        tier: The tier of every value.
        tolerance: Bounds of the outputs, as ``{"rtol": 1e-3, "atol": 1e-4}``.
        seeds: How many further inputs are drawn, which resemble the given ones: dtype,
            shape and range are theirs.
        name: Name of the component; the default is that of the class.
        store: Folder of artifacts; the default is the user's.
        runs: Folder of reports; the default is ``reports/runs``.

    Returns:
        The verdict; the run is also on disk, and ``parity show last`` shows it.

    Raises:
        ParityError: The module or its inputs cannot be tested; the message says why.

    """
    from harness.commands.session import RunSession
    from harness.core.settings import RUNS, Settings

    asked = AskedCheck.of(
        module,
        inputs,
        name=name,
        dynamic_shapes=dynamic_shapes,
        runtimes=tuple(runtimes),
        variants=variants,
        exporter=exporter,
        opset=opset,
        optimize=optimize,
        patch=patch,
        tier=tier,
        tolerance=dict(tolerance or {}),
        seeds=seeds,
    )
    settings = Settings(store=store, runs=runs or RUNS)
    with RunSession(settings, _progress()) as session:
        try:
            ran = asked.run_in(session)
            more, code = session.finish(ran.asked, ["harness.check", ran.name], None)
        except BaseException:
            if not session.folder().records():
                session.discard()
            raise
    return asked.verdict(ran, code, more)


@dataclass(frozen=True, kw_only=True)
class RanCheck:
    """The cases of one check that ran as a part of a run.

    Attributes:
        name: Name of the folder of its suite, in the run's folder.
        asked: Suite, case and check of each verdict.
        lines: A line for each case, below a head.
        verdicts: The verdicts.
        folder: The run's folder.

    """

    name: str
    asked: frozenset[Asked]
    lines: tuple[Line, ...]
    verdicts: tuple[CaseVerdict, ...]
    folder: Path


@dataclass(frozen=True, kw_only=True)
class AskedCheck:
    """What a user asks to check: calls of modules, and how their files are tested."""

    calls: Calls
    choice: CheckSettings

    @classmethod
    def of(
        cls,
        module: Any,
        inputs: Any,
        *,
        name: str = "",
        dynamic_shapes: Any = None,
        patch: Any = "",
        **choice: Any,
    ) -> AskedCheck:
        """Return it from the arguments of `check`, which says what they are.

        Raises:
            ParityError: The module or its inputs cannot be tested.

        """
        calls = module
        if not isinstance(calls, Calls):
            if inputs is None:
                msg = (
                    "check takes a module and its inputs, or the calls of "
                    "harness.capture."
                )
                raise SpecError(msg)
            made, given = made_of(module), module if isinstance(module, str) else ""
            calls = recorded(made, inputs, name, dynamic_shapes, given)
        calls.require()
        kept = patch if isinstance(patch, str) or patch is None else keep(patch)
        return cls(calls=calls, choice=CheckSettings(patch=kept or "", **choice))

    def run_in(self, session: RunSession) -> RanCheck:
        """Run every case as a part of a run; its suite lies in the run's folder.

        Raises:
            ParityError: The module cannot be tested.

        """
        from harness.commands.session import properties_of
        from harness.core.text import case_line
        from harness.engine.run import asked_of, path_of
        from harness.suite.suite import Check, load_suite

        parts, notices = parts_of(self.calls)
        folder = session.folder().path
        first = parts[0].name if len(parts) == 1 else "captured"
        names = (f"{first}-{at}" if at else first for at in range(1000))
        home = next(folder / name for name in names if not (folder / name).exists())
        home.mkdir()
        suite = load_suite(write_suite(home, parts, self.choice))
        session.prepare(
            Check(suite=suite, case=case, what=what)
            for case in suite.tested
            for what in case.whats
        )
        head = session.headers[path_of(suite)]
        lines = [Line(text=text) for text in (head, *(f" {one}." for one in notices))]
        verdicts: list[CaseVerdict] = []
        for case in suite.tested:
            own = [
                session.verdict(Check(suite=suite, case=case, what=what))
                for what in case.whats
            ]
            verdicts += own
            told = {verdict.what: dict(properties_of(verdict)) for verdict in own}
            lines.append(case_line(case.id, told))
        return RanCheck(
            name=home.name,
            asked=frozenset(asked_of(suite)),
            lines=tuple(lines),
            verdicts=tuple(verdicts),
            folder=folder,
        )

    def verdict(
        self, ran: RanCheck, code: int, more: Iterable[Line] = ()
    ) -> CheckVerdict:
        """Return the verdict on cases that ran, with the exit code of their run."""
        return CheckVerdict(
            code=code,
            lines=(*ran.lines, Line(text=""), *more),
            verdicts=ran.verdicts,
            run=ran.folder,
            calls=self.calls,
            choice=self.choice,
        )


def parts_of(calls: Calls) -> tuple[list[Part], list[str]]:
    """Return the components of recorded calls, and sentences about what is left out.

    Each module is kept in the store, unless its name was given.
    """
    parts, notices = [], []
    for name, one in calls.items():
        check_name("component", name)
        forms, notice = forms_of(one)
        notices += [f"{name}: {notice}"] if notice else []
        classes = {
            c: class_of(c)
            for form in forms.values()
            for c in classes_in(form.captured.arguments)
        }
        kept = one.given or keep(
            one.module, {c: cls for c, cls in classes.items() if cls}
        )
        rounded = rounded_in(one.module)
        parts += [
            Part(name=own, module=kept, form=form, rounded=rounded)
            for own, form in forms.items()
        ]
    return parts, notices


def _progress() -> Any:
    """Return what shows the progress on a terminal; None elsewhere."""
    from harness.commands.progress import ProgressLines

    with suppress(ValueError, AttributeError):  # a stream that is closed, or replaced
        if sys.stderr.isatty():
            return ProgressLines(sys.stderr).tell
    return None
