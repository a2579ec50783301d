"""A hook of mkdocs, which removes the links that lead out of docs/.

The site has no page for them, so only their text stays.
tests/plugin/test_docs.py checks that the file of each such link exists.
"""

import re

OUT = re.compile(r"(?<!!)\[([^\]]+)\]\(\.\./[^)]*\)")


def on_page_markdown(markdown, **_):
    return OUT.sub(r"\1", markdown)
