"""The reports of a run: text, Markdown, HTML, and the comparison of runs."""
