"""`parity tune`: find the tolerances that a healthy build needs.

inputs, strategies, search      which inputs to try, and where they are worst
worker                          measures them all, in a worker process
record                          tuning.json: all that was measured
proposal, edit, toml_edit       from records alone to a changed tolerances.toml
drift                           a run that has moved inside its tolerance
"""
