"""`parity tune`: find the tolerances that a healthy build needs.

draws                 the inputs that are tried
measure               runs the cases on them, and keeps the worst error of each value
record                tuning.json, with everything that was measured
headroom, proposal    compute tighter or looser bounds from a record alone
edit, toml_edit       write bounds into tolerances.toml
worst                 the inputs that are kept beside a suite
prune                 removes entries for cases that the suite no longer has
"""
