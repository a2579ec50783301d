"""Contracts: what a file must keep of its component beside values.

runs.interface     names, dtypes and open axes of a file's inputs and outputs
runs.reference     which inputs matter to PyTorch's module
runs.file          the same of a deployed file; whether its outputs repeat
judged             the verdict on that, from a record
"""

from harness.core.plugins import Plugin

PLUGIN = Plugin(
    interfaces=("harness.plugins.contracts.runs.interface:breach",),
    questions=("harness.plugins.contracts.runs.reference:ask",),
    replies=("harness.plugins.contracts.runs.file:ask_file",),
    failures=("harness.plugins.contracts.runs.file:frozen",),
    findings=("harness.plugins.contracts.judged:contract_finding",),
    notes=("harness.plugins.contracts.judged:contract_lines",),
    remarks=("harness.plugins.contracts.judged:remarks",),
)
