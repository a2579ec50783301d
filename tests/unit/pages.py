"""The words of a page, and the data that its script reads."""

import base64
import gzip
import json
import re
from html import unescape

BETWEEN = re.compile(
    r"</?(?:p|h\d|li|dt|dd|tr|th|td|div|summary|pre|figure|figcaption|button|title)\b"
    r"[^>]*>"
)


def unpacked(text):
    """Return the data of a page as the page's script reads it."""
    packed = text.split('id="data">', 1)[1].split("</script>", 1)[0]
    return gzip.decompress(base64.b64decode(packed)).decode()


def words(page):
    """Return what a reader sees of a page, and the texts of its tables and charts."""
    data = json.loads(unpacked(page)) if 'id="data">' in page else {}
    page = re.sub(r"(?s)<(script|style)\b.*?</\1>", "", page)
    text = re.sub(r"<[^>]+>", "", BETWEEN.sub("\n", page.replace("\n", " ")))
    lines = [" ".join(unescape(line).split()) for line in text.split("\n")]
    for table in data.get("tables", {}).values():
        titles = [column["title"] for column in table["columns"]]
        lines.append(f"{table['caption']}: {' | '.join(titles)}")
    charts = data.get("charts", {})
    lines += [f"{name}: {chart['alt']}" for name, chart in charts.items()]
    return "\n".join(filter(None, lines))
