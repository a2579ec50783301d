"""The options of a run, declared once for `parity run` and for pytest.

It imports nothing of the harness, because every pytest run imports it.
"""

from typing import NamedTuple


class RunOption(NamedTuple):
    """An option: the word for its value, empty for a flag, and a clause about it."""

    metavar: str
    text: str


OF_RUN = {
    "store": RunOption(
        "DIR", "where artifacts are kept: a folder, or a URL such as s3://bucket/prefix"
    ),
    "runs": RunOption("DIR", "where reports are written and looked for"),
    "tier": RunOption("TIER", "hold every value to this tier"),
    "set": RunOption(
        "BOUND=VALUE", "change a bound of every tolerance, as in sqnr_db=30; repeatable"
    ),
    "require": RunOption(
        "NAME,...", "runtimes whose absence is a failure and not a skip"
    ),
    "jobs": RunOption("N", "cases at once; the suite says when left out"),
    "on": RunOption(
        "CLUSTER", "run the cases on a Ray cluster: ray, or ray://HOST:10001"
    ),
    "read-only": RunOption("", "put nothing into a shared store"),
    "mnn-convert": RunOption("PROGRAM", "a native MNNConvert to use"),
    "baseline": RunOption("NAME", "compare the run with this reviewed baseline too"),
    "shard": RunOption(
        "N/OF", "run one part of the cases, as in 3/8; `parity merge` joins the parts"
    ),
}
"""Name of each option to what it takes."""
