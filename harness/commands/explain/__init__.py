"""`parity explain`: from a case that fails to the operator and to the setting.

knobs                     the settings that can be tried, and what each would blame
around                    the smallest excerpt that shows the divergence
explain, screen           try each setting, measure, and say what was found
repro, repro_scripts      a folder that shows the divergence without the harness
"""
