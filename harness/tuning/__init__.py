"""Find the tolerances that a healthy build needs: measure widely, propose, keep.

points, strategies, search      which inputs to try, and where they are worst
stage                           measures them all, in a child process
recorded                        tuning.json: all that was measured
proposal, ratchet, toml_text    from records alone to a changed tolerances.toml
drift                           a run that has moved inside its tolerance
"""
