"""The folders of this repository that tests read."""

from pathlib import Path

ROOT = Path(__file__).parents[1]
FIXTURES = ROOT / "fixtures"
DIGITS = FIXTURES / "digits"
EXPORTED = FIXTURES / "exported"

ODD_NAMES = {
    "slash": "a/b",
    "above": "../../x",
    "absolute": "/x",
    "long": "n" * 300,
    "blank": " ",
    "dot": ".",
    "nul": "a\0b",
    "quotes": "a\"b'c",
    "newline": "a\nb",
    "statement": '"""\nopen("ran", "w")\n"""',
    "template": "${title}$$",
    "braces": "{0}{x}",
    "backslash": "a\\n\\",
    "keyword": "file",
    "ending": "x.npy",
    "escape": "\x1b[31mred",
    "fence": "```\n<b>",
    "letters": "ä☃",
}
"""Legal names of values in an ONNX file that would do harm as a path or as code."""
