"""Plug-ins: what other packages add to `parity`, with no file of the harness touched.

A package declares a `Plugin` under the entry point ``parity.plugins``. This module
holds plain data. The functions behind the names are imported when they are needed.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, Final

from harness.core.errors import ParityError, SpecError, first_line

GROUP: Final = "parity.plugins"

HOME: Final = Path(__file__).parents[1] / "plugins"
"""The folders of the harness's own plug-ins."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plugin:
    """What a package adds; each entry is the name of a function, ``module:function``.

    Attributes:
        cases: Readers of the tables ``[pipeline.NAME]`` of a suite, each a
            `harness.suite.end_to_end.Reader`. The first that can be loaded reads all.
        files: Readers of files that others exported, which ``[component.NAME]`` names,
            each a `harness.suite.files.FileReader`. The first that can be loaded reads
            all.
        baselines: Functions of the name of a baseline and the folder of runs. Each
            returns the path of the baseline; `ParityError` says that there is none.
        adapters: Functions of a `Source` that names a LoRA. Each returns an `Adapter`
            of `harness.recipes.adapters`, or None.
        commands: `click` commands of `parity`.
        makes: `click` commands of `parity target make`.
        checks: Functions of a `CaseRecord`. Each returns None, or one sentence that
            says what is wrong. The outputs of the case then fail with the outcome
            ``check``.
        facts: Functions of a finished run's `RunFacts`, its `Judged` verdicts and the
            path of its report.json. Each returns the facts with what it adds, before
            anything is written of them.
        reports: Functions of a finished run's `RunFacts`. Each writes a file into the
            run's folder and returns its path.
        sections: Functions of a run's `RunFacts` that yield sections of its page.
        executors: Functions of the text of ``--on`` and of what receives progress. Each
            returns a `CaseExecutor`, or raises a `ParityError`.
        shards: Functions of the text of ``--shard``. Each returns a `Shard`.
        stores: Functions of the URL of a store, and of whether nothing may be put
            there. Each returns a `SharedStore`, or None for a URL that it cannot read.
        pythons: Functions of a `Runtime` and a version. Each returns the path of a
            Python that has this version of the runtime.
        patterns: Functions of an `Off`, a value whose error is far beyond noise. Each
            returns what the error looks like, or an empty text. Worker processes call
            them.
        graphs: Functions of a component, its PyTorch module and the store's entry of
            its exported graph. Each returns where the two differ, as values for JSON,
            and a record keeps it. The process that exports calls them.
        differences: Functions of a program's values, the deployed file and the exported
            graph. Each returns messages about operators that differ from the program's,
            by the names of their values. Worker processes call them.
        interfaces: Functions of a component, its export settings or None, and the
            `Sides` of a file; `harness.core.contract.breach` states what else. Each
            returns a message about the first promise that the file breaks, or "".
        questions: Functions of PyTorch's module as a `Run`, a component, its smallest
            sizes, and the symbols whose sizes stay open. Each returns notes and arrays,
            which the store keeps. The process that has the module calls them.
        replies: Functions of a deployed file as a `Run`, its component, the inputs of
            its samples, its outputs for the first one, and the store's entry of the
            `questions`. Each returns values for JSON, which a record keeps as the
            file's ``contract``. Worker processes call them.
        failures: Functions of the `StageError` of a sample's run, the deployed file as
            a `Run`, its component, its name, the inputs of all samples, and those that
            failed. Each returns an error that says more, or None.
        findings: Functions of a `CaseRecord`, the name of a check, and whether a value
            of it is out of tolerance. Each returns a `CheckFinding`, or None.
        gists: Functions of a `CaseRecord` and the name of a check. Each yields a short
            message about a picture of the check, if there is one.
        lines: Functions of the `CaseRecord` of an end-to-end case. Each yields a `Line`
            for the list of its values.
        tables: Functions of a run's `RunFacts` that yield parts of its Markdown.
        others: Functions of a `CaseRecord`, its judged layers and its judged outputs.
            Each returns the layers, where a failing value that stands for another one
            than the reference's has `JudgedRow.other`.
        beside: Functions of a `CaseRecord`, a check and its judged rows. Each yields
            messages beside the verdict, for its reason, the summary and the page.
        notes: Functions of a `CaseRecord` that yield messages for the list of its
            layers, such as what was not compared.
        remarks: Functions of a run's records, and the name of each by its key. Each
            yields sentences for the end of the run's summary and page.
        sessions: Functions of an `Opening` of a deployed file on a target. Each returns
            a context manager that gives the `Session`, or None for another's target.
        targets: Kinds of the tables ``[target.NAME]`` of a suite, each a
            `harness.suite.places.TargetKind`. It also says which versions a target
            has, for `parity versions`, and which of its settings `parity explain`
            may change.
        preload: Modules that the process of PyTorch imports before its first job.

    """

    cases: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    baselines: tuple[str, ...] = ()
    adapters: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()
    makes: tuple[str, ...] = ()
    checks: tuple[str, ...] = ()
    facts: tuple[str, ...] = ()
    reports: tuple[str, ...] = ()
    sections: tuple[str, ...] = ()
    executors: tuple[str, ...] = ()
    shards: tuple[str, ...] = ()
    stores: tuple[str, ...] = ()
    pythons: tuple[str, ...] = ()
    patterns: tuple[str, ...] = ()
    graphs: tuple[str, ...] = ()
    differences: tuple[str, ...] = ()
    interfaces: tuple[str, ...] = ()
    questions: tuple[str, ...] = ()
    replies: tuple[str, ...] = ()
    failures: tuple[str, ...] = ()
    findings: tuple[str, ...] = ()
    gists: tuple[str, ...] = ()
    lines: tuple[str, ...] = ()
    tables: tuple[str, ...] = ()
    others: tuple[str, ...] = ()
    beside: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()
    sessions: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()
    preload: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Added:
    """One function of a plug-in.

    Attributes:
        plugin: Name of the plug-in's entry point.
        name: Name of the function, ``module:function``.
        function: The function; None if it cannot be loaded.
        refused: Why it cannot be loaded; empty if it can.

    """

    plugin: str
    name: str
    function: Callable[..., Any] | None
    refused: str = ""

    @property
    def words(self) -> str:
        """The function and why it cannot be loaded, as one sentence."""
        return f"plug-in {self.plugin!r}: {self.name} cannot be loaded: {self.refused}"

    def called(
        self,
        *arguments: object,
        **named: object,
    ) -> Any:  # noqa: ANN401  # what a plug-in returns
        """Return what the function returns.

        Raises:
            SpecError: It cannot be loaded.
            Exception: The function raised it.

        """
        if self.function is None:
            raise SpecError(self.words)
        return self.function(*arguments, **named)

    def sentences(self, *arguments: object) -> Iterator[str]:
        """Yield what the function yields; an error of it is a sentence too.

        A plug-in that cannot be loaded has none; commands and checks say so.
        """
        if self.name == GROUP:
            return
        try:
            yield from self.called(*arguments)
        except SpecError as error:
            yield str(error)
        except Exception as error:  # noqa: BLE001  # a package's own code raises anything
            yield self.failed(error)

    def failed(self, error: Exception) -> str:
        """Return a sentence about an error that the function raised."""
        return f"plug-in {self.plugin!r}: {self.name} failed: {first_line(error)}"


def added(kind: str) -> Iterator[Added]:
    """Yield what the installed plug-ins add of a kind, by the plug-ins' names.

    A plug-in that cannot be loaded yields one entry, which says why.

    Args:
        kind: A field of `Plugin`.

    """
    for name, plugin, refused in _plugins():
        if plugin is None:
            yield Added(name, GROUP, None, refused)
        for function in getattr(plugin, kind, ()):
            yield _loaded(name, function)


def answers(kind: str, *arguments: object, **named: object) -> Iterator[Any]:
    """Yield what each function of a kind returns.

    A plug-in that cannot be loaded has no functions; commands and checks say so.

    Raises:
        SpecError: A function cannot be loaded.
        Exception: A function raised it.

    """
    for one in added(kind):
        if one.name != GROUP:
            yield one.called(*arguments, **named)


def merged(kind: str, *arguments: object) -> dict[str, Any]:
    """Return all that the functions of a kind return, as one mapping.

    Raises:
        SpecError: A function cannot be loaded.
        Exception: A function raised it.

    """
    return {
        name: value
        for answer in answers(kind, *arguments)
        for name, value in answer.items()
    }


def sentences(kind: str, *arguments: object) -> Iterator[str]:
    """Yield the sentences of each function of a kind; one that fails is a sentence."""
    for one in added(kind):
        yield from one.sentences(*arguments)


def first_answer(kind: str, *arguments: object, lacking: ParityError) -> Any:  # noqa: ANN401  # what a plug-in returns
    """Return the first answer of the functions of a kind that is not None.

    A function that cannot be loaded does not keep the others from answering.

    Args:
        kind: A field of `Plugin`.
        *arguments: What each function gets.
        lacking: The error where no function answers, and all could be loaded.

    Raises:
        SpecError: None answers, and one cannot be loaded.
        ParityError: None answers.

    """
    refused = ""
    for one in added(kind):
        if one.function is None:
            refused = refused or one.words
        elif (answer := one.function(*arguments)) is not None:
            return answer
    raise SpecError(refused) if refused else lacking


def declared(kind: str) -> tuple[str, ...]:
    """Return the names that the installed plug-ins declare of a kind.

    Args:
        kind: A field of `Plugin`.

    """
    plugins = (plugin for _, plugin, _ in _plugins() if plugin is not None)
    return tuple(name for plugin in plugins for name in getattr(plugin, kind))


@functools.cache
def _plugins() -> tuple[tuple[str, Plugin | None, str], ...]:
    found: list[tuple[str, Plugin | None, str]] = []
    points = sorted(metadata.entry_points(group=GROUP), key=lambda point: point.name)
    for point in points:
        try:
            plugin = point.load()
        except Exception as error:  # noqa: BLE001  # a package's own code raises anything
            found.append((point.name, None, first_line(error)))
            continue
        refused = "" if isinstance(plugin, Plugin) else f"{point.value} is no Plugin"
        found.append((point.name, None if refused else plugin, refused))
    # An editable harness has new folders before somebody installs it again. What they
    # check must not be missing in silence.
    package = f"{__name__.partition('.')[0]}.plugins"
    there = {point.value.partition(":")[0] for point in points}
    own = sorted(path.parent.name for path in HOME.glob("*/__init__.py"))
    why = "install the harness again, for its entry point"
    found += [(name, None, why) for name in own if f"{package}.{name}" not in there]
    return tuple(found)


@functools.cache
def _loaded(plugin: str, name: str) -> Added:
    module, _, function = name.partition(":")
    try:
        return Added(plugin, name, getattr(importlib.import_module(module), function))
    except Exception as error:  # noqa: BLE001  # as above
        return Added(plugin, name, None, first_line(error))
