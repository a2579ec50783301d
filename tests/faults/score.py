"""What the catalogue and the clean runs add up to, as a table and as JSON."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from tests.faults.catalogue.fault import FAMILIES
from tests.faults.clean import CleanRun
from tests.faults.peers import PEERS

_COLUMNS = (
    *("Family", "Faults", "Planted", "Caught", "Have a place", "Localised"),
    *("Explained", "Wrong words", "Caught on other machines", "In rewritten files"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What became of one fault in one runtime.

    Attributes:
        fault: Its name.
        family: Its family.
        backend: Runtime; ``harness`` for a rule of our own.
        caught: Whether any check failed.
        places: Where it may be blamed on; empty if it has no place.
        localised: Whether it was.
        explained: Whether the words say what it is.
        wrong: What is said of how the error looks and is not true of the fault.
        said: The words.
        peers: Rule of a peer to whether it tells; empty for a rule of our own.
        took_s: Seconds.

    """

    fault: str
    family: str
    backend: str
    caught: bool
    places: Sequence[str] = ()
    localised: bool = False
    explained: bool
    wrong: Sequence[str] = ()
    said: str
    peers: Mapping[str, bool] = field(default_factory=dict)
    took_s: float


def table(
    results: Sequence[Result],
    clean: Sequence[CleanRun],
    elsewhere: Mapping[str, Sequence[str]],
) -> str:
    """Return the score in Markdown: ours by family, then beside the peers'.

    `elsewhere` has what was caught on other machines and in rewritten files, by family.
    """
    lines = [f"| {' | '.join(_COLUMNS)} |", f"|---{'|--:' * (len(_COLUMNS) - 1)}|"]
    for family in (*FAMILIES, "all"):
        some = [r for r in results if family in {r.family, "all"}]
        placed = [r for r in some if r.places]
        lines.append(
            f"| {family} | {len({r.fault for r in some})} | {len(some)} "
            f"| {_share(r.caught for r in some)} | {len(placed)} "
            f"| {_share(r.localised for r in placed)} "
            f"| {_share(r.explained for r in some)} "
            f"| {_share(bool(r.wrong) for r in some)} "
            f"| {' | '.join(elsewhere[family])} |"
        )
    seen = [r for r in results if r.peers]
    lines += [
        "",
        f"| Rule | Caught of {len(seen)} | False alarms in {len(clean)} clean runs |",
        "|---|--:|--:|",
        _rule_line(
            "this harness", [r.caught for r in seen], [bool(run.alarm) for run in clean]
        ),
    ]
    lines += [
        _rule_line(
            name, [r.peers[name] for r in seen], [run.peers[name] for run in clean]
        )
        for name in PEERS
    ]
    return "\n".join(lines)


def _rule_line(name: str, caught: Iterable[bool], alarms: Iterable[bool]) -> str:
    return f"| {name} | {_share(caught)} | {_share(alarms)} |"


def missed(results: Sequence[Result], clean: Sequence[CleanRun]) -> str:
    """Return what fell short, by what it fell short of."""
    short = {
        "Not caught": [r for r in results if not r.caught],
        "Blamed elsewhere": [r for r in results if r.places and not r.localised],
        "Not explained": [r for r in results if not r.explained],
    }
    lines = [
        f"- {words}: {', '.join(f'{r.fault} ({r.backend})' for r in some)}."
        for words, some in short.items()
        if some
    ]
    lines += [
        f"- Wrong words: {r.fault} ({r.backend}): {'; '.join(r.wrong)}."
        for r in results
        if r.wrong
    ]
    lines += [f"- False alarm: {run.id}." for run in clean if run.alarm]
    return "\n".join(lines) or "- Nothing."


def _share(answers: Iterable[bool]) -> str:
    counted = [bool(answer) for answer in answers]
    return share(sum(counted), len(counted))


def share(some: int, every: int) -> str:
    """Return ``57 (98 %)``; rounded down, so that only all are 100 %."""
    return f"{some} ({100 * some // every} %)" if every else "0"
