"""From a case that parts to the operator, and to the knob that mends it.

knobs                     what can be turned, and what that would blame
excerpt, excerpt_stage    the operators around a place, cut out as a model of their own
around                    the smallest of these that shows the divergence
explain, screen           turn each knob and measure; say what was found
repro, repro_scripts      a folder that shows it without the harness
"""
