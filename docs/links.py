"""Hook of mkdocs: a link out of docs/ becomes plain words; the site has no such page.

tests/plugin/test_docs.py checks that the file of each such link exists.
"""

import re

OUT = re.compile(r"(?<!!)\[([^\]]+)\]\(\.\./[^)]*\)")


def on_page_markdown(markdown, **_):
    return OUT.sub(r"\1", markdown)
