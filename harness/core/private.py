"""Take secrets and personal paths out of texts; no other module has rules for this.

What the harness shows has no secret in it (`without_secrets`). What it writes down has
no personal path either (`public`). What it makes to be published has no path at all
(`without_paths`).
"""

from __future__ import annotations

import getpass
import os
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import cache, lru_cache, partial
from pathlib import Path
from typing import Any

_SEP = r"(?:/|\\{1,4}|%(?:25)*(?:2F|5C))"
"""What stands between parts of a path; backslashes may be doubled, as in JSON."""

# A separator of a URL is itself, or percent-encoded once or several times.
_PLAIN = {"slash": "/", "at": "@", "colon": ":", "query": r"\?", "fragment": "#"}
_ENCODED = {
    name: rf"%(?:25)*{code}"
    for name, code in {
        "slash": "2F",
        "at": "40",
        "colon": "3A",
        "query": "3F",
        "fragment": "23",
    }.items()
}
_URL = re.compile(
    r"\b(?P<scheme>[a-z][a-z0-9+.-]{0,20}(?:://|%(?:25)*3A(?:%(?:25)*2F){2}))"
    r"(?P<rest>[^\s\"'<>`|]+)",
    re.IGNORECASE,
)
_DEPTH = 3
"""How many URLs inside of each other are shown."""

_QUERY = re.compile(r"([?#]|%(?:25)*(?:3F|23)).+", re.IGNORECASE | re.DOTALL)
_SENTENCE = re.compile(r"[).,;:!\]}]*\Z")
"""Punctuation behind a URL, which belongs to the sentence."""

_LONE_QUERY = re.compile(r"(?<=[\w/.-])\?[\w.%-]+=[^\s\"'<>`|]*")
"""The query of a URL whose beginning is not in the text, as in messages of HTTP."""

_OPENS = (
    r"(?:sig|signature|sas|secrets?|password|passwd|passphrase|credentials?"
    r"|(?<=[_-])pwd"
    r"|(?:access|auth|bearer|refresh|id|session)?[_-]?token|connection[_-]?string"
    r"|shared[_-]?access[_-]?(?:key|signature)|authorization"
    r"|(?:api|access|secret|private|account|shared|storage|auth|encryption)[_-]?key)"
    r"(?:[_-]?id)?"
)
_VALUE = r"(?!(?:\d{1,6}|true|false|none|null)\b)[^\s\"'&;,)\]}]+"
_NAMED = re.compile(
    # The special tokens of a vocabulary are no secrets.
    rf"(?<![a-z0-9])(?<!(?:bos|eos|pad|unk|cls|sep)_)(?<!mask_)"
    rf"(?P<name>{_OPENS}(?:=[\"']?|[\"']\s*:\s*[\"']))(?:(?:bearer|basic) )?{_VALUE}",
    re.IGNORECASE,
)
"""``HF_TOKEN=…``, ``--api-key=…``, ``"password": "…"``."""

_BEARER = re.compile(r"\b((?:bearer|basic)\s+)[a-z0-9._~+/=-]{16,}", re.IGNORECASE)
_KEYS = re.compile(
    r"\b(?:hf_[A-Za-z0-9]{16,}|gh[pousr]_[A-Za-z0-9]{16,}|github_pat_\w{16,}"
    r"|(?:AKIA|ASIA)[A-Z0-9]{16}|sk-[A-Za-z0-9_-]{20,}"
    r"|eyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*)"
)
"""Keys that show by their form what they are."""

_VARIABLE = re.compile(rf"(?:\A|_)(?:{_OPENS}|pass)\Z", re.IGNORECASE)
"""The name of a variable of the environment whose value is a secret."""

_LEAST = 8
"""Fewest characters of such a value. A shorter one would be found in other words."""

_BEGIN = r"(?:(?<![\w.~/\\-])|(?<=://)|(?<=\s-[A-Za-z]))"
"""Where an absolute path may begin: not inside of another path, nor of a word."""

_END = r"(?=[/\\%\s\"'`:;,.()\[\]{}<>|&]|\Z)"
_PART = r"[^\s/\\\"'`:;,()\[\]{}<>|%&]"
_NAME = rf"{_PART}*[^\s/\\\"'`:;,.()\[\]{{}}<>|%&](?: {_PART}+(?=[/\\]))?"
"""The name of a user's folder; it may have a space if the path goes on."""

_HOMES = re.compile(
    rf"{_BEGIN}(?:(?:[a-z]:)?(?:{_SEP}{_PART}+){{0,3}}?{_SEP}"
    rf"(?:home|users|documents and settings){_SEP}{_NAME}"
    rf"|(?:/(?:private/)?var)?/root){_END}",
    re.IGNORECASE,
)
_FOLDERS = rf"{_BEGIN}(?:[A-Za-z]:|~)?[/\\](?:{_PART}+[/\\])*?"
_INSTALLED = re.compile(
    rf"{_FOLDERS}(?:(?:site|dist)-packages[/\\]|(?=python3\.\d+[/\\](?!(?:site|dist)-)))"
)
_MODULE = re.compile(rf"{_FOLDERS}((?:{_PART}+[/\\])?{_PART}+\.py[ix]?)\b")
"""A module below no folder of imports. Its last folder and its name are kept."""

_CODE = rf"(?=(?:{_PART}+[/\\])*{_PART}+\.(?:pyc?|pyi|pyx|so|pyd|dll|dylib)\b)"

_PATH = re.compile(r"(?<![^\s'\"(\[=,:])(~?/(?!/)|file:/|[A-Za-z]:[\\/]|\\\\).*")
"""A path that begins at a root or a home, and what follows it: it may have spaces."""

_COMMON_USERS = frozenset(
    {"root", "user", "users", "admin", "build", "runner", "ubuntu", "debian", "test"}
)
"""Names of users that say nothing about a person."""


def without_secrets(text: str) -> str:
    """Return a text without what opens something: keys, tokens, parts of URLs.

    From each URL the user, the query and the fragment are taken, wherever in a text it
    stands and also where it is percent-encoded. So are values of names such as
    ``HF_TOKEN`` or ``password``, and the values of such variables of the environment.

    >>> without_secrets("--store s3://KEY:abc/d@bucket/p 'https://h/x?sv=1&sig=a%2F'")
    "--store s3://…@bucket/p 'https://h/x?…'"
    >>> without_secrets("see https://www.mnn.zone/a, or HF_TOKEN=abc")
    'see https://www.mnn.zone/a, or HF_TOKEN=…'
    >>> without_secrets("https%3A%2F%2Fhost%2Fp%3Fsig%3Dabc")
    'https%3A%2F%2Fhost%2Fp%3F…'
    """
    if "/" in text or "%" in text:
        text = _LONE_QUERY.sub("?…", _URL.sub(_without_keys, text))
    if "=" in text or ":" in text:
        text = _NAMED.sub(r"\g<name>…", text)
    text = _KEYS.sub("…", _BEARER.sub(r"\1…", text))
    secrets = _of_environment()
    return secrets.sub("…", text) if secrets else text


def public(text: str, root: Path | None = None) -> str:
    r"""Return a text without secrets and without personal paths, to be written down.

    A path below `root` or below a folder of imports is told from there, and any other
    module by its last folder: ``package/module.py:12``. Homes become ``~``. Other paths
    stay, because somebody who reads his own run needs them.

    Args:
        text: The text; it may have lines.
        root: The folder that paths are told from, such as the suite's.

    >>> public("/home/ann/models/sd, C:\\Users\\ann lee\\x.onnx")
    '~/models/sd, ~\\x.onnx'
    >>> public("/srv/nets/net.py:3 of /srv/nets/cards", Path("/srv/nets"))
    'net.py:3 of cards'
    >>> public('File "/opt/job/9/our_nets/block.py", line 3')
    'File "our_nets/block.py", line 3'
    """
    text = without_secrets(text)
    if not any(letter in text for letter in "/\\%"):
        return text
    if root:
        below, itself = _root(root)
        text = itself.sub(".", below.sub("", text))
    imports, home = _own(tuple(sys.path))
    text = imports.sub("", text)
    text = _HOMES.sub("~", home.sub("~", text))
    text = _MODULE.sub(r"\1", _INSTALLED.sub("", text))
    user = _user()
    return user.sub(r"\1$USER", text) if user else text


def public_values(value: Any) -> Any:  # noqa: ANN401  # what JSON holds
    """Return JSON values with each text as `public`; names of fields stay.

    >>> public_values({"cache_dir": "/home/ann/cache", "threads": 4, "flags": ("-x",)})
    {'cache_dir': '~/cache', 'threads': 4, 'flags': ('-x',)}
    """
    if isinstance(value, str):
        return public(value)
    if isinstance(value, Mapping):
        return {name: public_values(one) for name, one in value.items()}
    if isinstance(value, tuple):
        return tuple(public_values(one) for one in value)
    return [public_values(one) for one in value] if isinstance(value, list) else value


def with_tilde(path: Path) -> str:
    """Return a path for a file that may be sent; `from_tilde` reads it here."""
    with suppress(RuntimeError, ValueError):  # no home, or a path outside it
        home = Path.home()
        if home.parts[1:]:
            return str(Path("~", path.relative_to(home)))
    return str(path)


def from_tilde(path: str) -> Path:
    """Return a path with a home in place of the ``~``; it stays if nobody has the name.

    A path of data may name a user that this machine does not have. `Path.expanduser`
    would raise an error.
    """
    return Path(os.path.expanduser(path))  # noqa: PTH111  # it raises no error


def without_paths(text: str) -> str:
    """Return a text to be published: no line names a secret or a place of a machine.

    >>> without_paths("ImportError: /home/ann lee/MNN.so: undefined symbol")
    'ImportError: PATH'
    >>> without_paths("--store file:///home/ann/store")
    '--store PATH'
    >>> without_paths("MNN 3.6.1, see https://www.mnn.zone, 1/2")
    'MNN 3.6.1, see https://www.mnn.zone, 1/2'
    """
    return _PATH.sub("PATH", without_secrets(text))


def _without_keys(found: re.Match[str], depth: int = 0) -> str:
    """Return a URL without its user, its query and its fragment."""
    scheme, rest = found["scheme"], found["rest"]
    signs = _PLAIN if scheme.endswith("//") else _ENCODED
    sentence = _SENTENCE.search(rest)
    end = sentence.group() if sentence else ""
    rest = rest.removesuffix(end)
    stop = "|".join(signs[name] for name in ("slash", "query", "fragment"))
    host = re.split(stop, rest, maxsplit=1, flags=re.IGNORECASE)[0]
    # A key may have a slash or a question mark that nobody has encoded.
    with_key = re.search(rf"{signs['colon']}(?!\d*\Z)", host, re.IGNORECASE)
    whole = with_key and not host.startswith("[")
    at = re.compile(rf".*({signs['at']})", re.IGNORECASE | re.DOTALL)
    if user := at.match(rest if whole else host):
        rest = f"…{user[1]}{rest[user.end() :]}"
    elif whole:
        rest = "…"
    rest = _QUERY.sub(r"\1…", rest)
    if depth < _DEPTH:
        inside = _URL.sub(partial(_without_keys, depth=depth + 1), rest)
    else:
        inside = "…"
    return f"{scheme}{inside}{end}"


@cache
def _of_environment() -> re.Pattern[str] | None:
    """Return a pattern of the secrets that this process was started with.

    The value of a variable may be the path of a file with the secret; that is none.
    """
    values = {
        value
        for name, value in os.environ.items()
        if len(value) >= _LEAST and _VARIABLE.search(name) and value[0] not in "/~"
    }
    return re.compile("|".join(map(re.escape, values))) if values else None


def _spelled(folder: Path) -> Iterator[str]:
    """Yield patterns of the ways in which a folder may be written; none for a root."""
    for path in dict.fromkeys((folder.absolute(), folder.resolve())):
        parts = "".join(f"{_SEP}{re.escape(part)}" for part in path.parts[1:])
        if parts:
            yield f"{re.escape(path.drive)}{parts}"


@lru_cache(maxsize=8)
def _root(root: Path) -> tuple[re.Pattern[str], re.Pattern[str]]:
    """Return patterns of what is below a folder, and of the folder itself."""
    either = "|".join(_spelled(root)) or r"(?!)"
    return (
        re.compile(rf"{_BEGIN}(?:{either}){_SEP}(?=[\w.-])"),
        re.compile(rf"{_BEGIN}(?:{either}){_END}"),
    )


@lru_cache(maxsize=8)
def _own(imports: tuple[str, ...]) -> tuple[re.Pattern[str], re.Pattern[str]]:
    """Return patterns of code below the folders of imports, and of this user's home."""
    homes: list[str] = []
    with suppress(RuntimeError):  # the system may know no home
        homes += _spelled(Path.home())
    folders = {one for folder in imports if folder for one in _spelled(Path(folder))}
    longest_first = sorted(folders, key=len, reverse=True)
    none = r"(?!)"
    return (
        re.compile(rf"{_BEGIN}(?:{'|'.join(longest_first) or none}){_SEP}{_CODE}"),
        re.compile(rf"{_BEGIN}(?:{'|'.join(homes) or none}){_END}"),
    )


@cache
def _user() -> re.Pattern[str] | None:
    """Return a pattern of the user's name as a folder; None if it is no person's."""
    try:
        name = getpass.getuser()
    except (OSError, KeyError, ImportError):
        return None
    if name in _COMMON_USERS or len(name) < len("ann"):
        return None
    return re.compile(rf"(?<=[/\\])(pytest-of-)?{re.escape(name)}{_END}")
