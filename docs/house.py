"""Print the figures of the house: how large it is, and how its modules hang together.

    python -m tox run -e house

Lines of code are lines that are neither empty nor a comment nor part of a docstring.
"""

import ast
import io
import sys
import tokenize
from collections import Counter
from functools import cache
from pathlib import Path

from harness.core.runtime import runtimes

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "harness"


def modules():
    """Return each module's dotted name and its tree."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        name = ".".join(part for part in parts if part != "__init__")
        found[name] = ast.parse(path.read_text(encoding="utf-8"))
    return found


def path_of(name):
    """Return the file of a module."""
    path = ROOT.joinpath(*name.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def is_typed(node):
    """Whether a statement is there for type checkers alone."""
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)


def top(tree):
    """Yield the nodes that run when a module is imported."""
    for node in tree.body:
        if not is_typed(node) and not isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield from ast.walk(node)


def imports(tree, known):
    """Return the modules of the harness that a tree imports when it is imported."""
    return imports_of(top(tree), known)


def imports_of(nodes, known):
    """Return the modules of the harness that some nodes import."""
    names = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    found = set()
    for name in names:
        while name and name not in known:
            name = name.rpartition(".")[0]  # noqa: PLW2901  # the module of a name
        if name:
            found.add(name)
    return found - {"harness"}


def longest_chain(trees):
    """Return how many modules stand in the longest chain of imports."""
    below = {name: imports(tree, set(trees)) - {name} for name, tree in trees.items()}

    @cache
    def depth(name):
        return 1 + max(map(depth, below[name]), default=0)

    return max(map(depth, trees))


def code_lines(path):
    """Return how many lines of a file are code."""
    text = path.read_text(encoding="utf-8")
    skipped = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.ENDMARKER}
    skipped |= {tokenize.INDENT, tokenize.DEDENT}
    lines = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in skipped:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(text)):
        texts = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if texts and isinstance(node.value.value, str):
            lines -= set(range(node.lineno, node.end_lineno + 1))
    return len(lines)


def lines_of(folder):
    """Return the lines of all Python files under a folder."""
    texts = (path.read_text(encoding="utf-8") for path in folder.rglob("*.py"))
    return sum(len(text.splitlines()) for text in texts)


def strangers(trees):
    """Return the modules outside a runtime's own folder that hold its name."""
    names = set(runtimes())
    found = []
    for module, tree in trees.items():
        own = {name for name in names if module.startswith(f"harness.runtimes.{name}")}
        held = {n.value for n in ast.walk(tree) if isinstance(n, ast.Constant)}
        if held & names - own:
            found.append(module)
    return found


def doubled(trees):
    """Return the class names that more than one module has, but for private ones."""
    names = Counter(
        node.name
        for tree in trees.values()
        for node in tree.body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    return sorted(name for name, count in names.items() if count > 1)


RUN = (
    *("harness.commands.run", "harness.plugin"),
    *("harness.runtimes.pytorch.prepare", "harness.runtimes.graph.deploy"),
    *("harness.runtimes.candidate.candidate", "harness.runtimes.candidate.operators"),
    *(f"harness.runtimes.onnxruntime.{name}" for name in ("convert", "session")),
    *(f"harness.runtimes.mnn.{name}" for name in ("convert", "session")),
)
"""What a run of components imports: the command, the plugin, the workers' modules."""

EVIDENCE = ("faults", "exporters", "machines")

RUN_CODE = "code that a run of components imports"
ALL_CODE = "code of harness/"
TESTS = f"lines of tests/ without {', '.join(EVIDENCE)}"

REACHED = {RUN_CODE: 20_800, ALL_CODE: 53_800, TESTS: 56_500}
"""The limits of what is larger than the plan says; none of them may grow."""


def closure(trees, first):
    """Return all modules that some modules import, also inside of functions."""
    known, found, waiting = set(trees), set(), list(first)
    while waiting:
        name = waiting.pop()
        if name in found:
            continue
        found.add(name)
        body = [node for node in trees[name].body if not is_typed(node)]
        whole = ast.Module(body=[*body], type_ignores=[])
        waiting += imports_of(ast.walk(whole), known)
    return found


def main():
    """Print each figure beside the plan's; end with 1 where one is beyond its limit.

    A figure that the plan has not reached has a limit of its own, so that it does not
    grow. Whoever makes it smaller lowers that limit.
    """
    trees = modules()
    paths = {name: path_of(name) for name in trees}
    code = {name: code_lines(path) for name, path in paths.items()}
    run = closure(trees, RUN)
    plugins = Counter()
    for name in trees:
        if name.startswith("harness.plugins."):
            plugins[name.split(".")[2]] += code[name]
    into = sum(
        one.startswith("harness.plugins.")
        for name, tree in trees.items()
        if not name.startswith("harness.plugins.")
        for one in imports_of(ast.walk(tree), set(trees))
    )
    tests = ROOT / "tests"
    own = lines_of(tests) - sum(lines_of(tests / name) for name in EVIDENCE)
    twice = doubled(trees)
    rows = [
        (RUN_CODE, sum(code[n] for n in run), 16_000),
        (ALL_CODE, sum(code.values()), 35_000),
        ("code of one plug-in, the largest", max(plugins.values(), default=0), 3_200),
        (TESTS, own, 31_000),
        ("imports from the core into a plug-in", into, 0),
        ("longest chain of imports", longest_chain(trees), 16),
        ("modules outside its folder that name a runtime", len(strangers(trees)), 0),
        ("class names that mean two things", len(twice), 0),
    ]
    print("| | here | at most | plan |\n|---|--:|--:|--:|")
    limits = {name: REACHED.get(name, plan) for name, _, plan in rows}
    for name, number, plan in rows:
        print(f"| {name} | {number:,} | {limits[name]:,} | {plan:,} |")
    if twice:
        print(f"\nThese class names stand in two modules: {', '.join(twice)}.")
    return int(any(number > limits[name] for name, number, _ in rows))


if __name__ == "__main__":
    sys.exit(main())
