"""Whether other users can write to a place, and making places where they cannot.

What can run when it is read is used only where nobody else can write: a program that
the store keeps, and the Python environments beside it.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path

PRIVATE = 0o700
"""Mode of a folder that only its owner may read and write."""

WRITABLE = 0o022
"""The bits of a mode by which others may write."""


def mode_of(path: Path) -> int:
    """Return the bits of a mode that say who may read, write and enter."""
    return stat.S_IMODE(path.stat().st_mode) & 0o777


def set_mode(path: Path, mode: int) -> None:
    """Give a file or folder a mode, whatever the umask is.

    Nothing is done on a file system without modes, or to what belongs to another user.
    """
    with suppress(OSError):
        there = stat.S_IMODE(path.stat().st_mode)
        # The other bits stay: they hand a folder's group on to what is made there.
        if there & 0o777 != mode:
            path.chmod(there & ~0o777 | mode)


def make_folders(path: Path, mode: int = PRIVATE) -> None:
    """Make a folder, and those above it that are missing, with a mode.

    Raises:
        OSError: One of them cannot be made.

    """
    missing = []
    while not path.is_dir():
        missing.append(path)
        path = path.parent
    for one in reversed(missing):
        one.mkdir(mode=mode, exist_ok=True)
        set_mode(one, mode)


def is_private(path: Path) -> bool:
    """Whether only this user, or root, can write to a file or folder or replace it.

    Each folder above it must be so too, because whoever writes there can put another
    one in its place. In a folder such as ``/tmp`` each user can replace his own files
    only. On Windows modes say nothing, and the answer is yes.
    """
    if not hasattr(os, "geteuid"):
        return True
    try:
        real = path.resolve(strict=True)
        above = {*path.absolute().parents, *real.parents}
        return all(map(_is_ours, (path.absolute(), real))) and all(
            _is_safe(one) for one in above
        )
    except (OSError, RuntimeError):  # a loop of links
        return False


def _is_ours(path: Path) -> bool:
    about = path.lstat()
    return about.st_uid == os.geteuid() and not _others_write(about)


def _is_safe(folder: Path) -> bool:
    about = folder.lstat()
    is_sticky = bool(about.st_mode & stat.S_ISVTX)
    return about.st_uid in {0, os.geteuid()} and (is_sticky or not _others_write(about))


def _others_write(about: os.stat_result) -> bool:
    if stat.S_ISLNK(about.st_mode):  # a link has no mode of its own
        return False
    if about.st_mode & stat.S_IWOTH:
        return True
    return bool(about.st_mode & stat.S_IWGRP) and not _is_own_group(about.st_gid)


def _is_own_group(gid: int) -> bool:
    """Whether a group has no member but this user, as Linux gives each user one."""
    import grp
    import pwd

    try:
        user, group = pwd.getpwuid(os.geteuid()), grp.getgrgid(gid)
    except KeyError:
        return False
    return (
        user.pw_gid == gid
        and group.gr_name == user.pw_name
        and set(group.gr_mem) <= {user.pw_name}
    )
