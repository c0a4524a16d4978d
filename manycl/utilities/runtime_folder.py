"""The user's runtime folder: where processes of one user find one another, and nobody else does. A folder of the user's
alone (mode 0700), which is gone after a restart of the machine. All processes of a user have to find the same one,
whether or not they were started from a login: what XDG_RUNTIME_DIR names, else what a login would have
(``/run/user/UID``), else a folder of the user's in the temporary folder."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path

from manycl import flags
from manycl.errors import ManyclError

_NAME = "manycl"


def location() -> str:
    """Return where it is, or would be."""
    user = os.geteuid()
    for base in (flags.runtime(), f"/run/user/{user}"):
        with suppress(OSError, ValueError):
            if os.path.isabs(base) and is_own(os.stat(base), 0o022):
                return os.path.join(base, _NAME)
    return os.path.join(flags.temporary(), f"{_NAME}-{user}")


def existing() -> str | None:
    """Return where it is; None if it is not there, or is somebody else's: nobody makes it who only looks."""
    path = location()
    try:
        found = os.lstat(path)
    except (OSError, ValueError):
        return None
    return path if is_own(found, 0o077) else None


def runtime_folder() -> Path:
    """The folder, made if it is not there. Raises ManyclError where it cannot be, or is not the user's alone."""
    path = location()
    try:
        with suppress(FileExistsError):
            os.mkdir(path, 0o700)
        found = os.lstat(path)
    except (OSError, ValueError) as error:
        raise ManyclError(f"there is no runtime folder {path}: {error}", hint=_HINT) from None
    if not is_own(found, 0o077):
        raise ManyclError(f"{path} is not a folder of this user's alone (mode 0700)", hint=_HINT)
    return Path(path)


def lasting_folder(kind: str) -> Path:
    """Return where the user's ``cache`` or ``data`` are; without a home, and errors, as of :func:`runtime_folder`."""
    import platformdirs

    try:
        return Path(getattr(platformdirs, f"user_{kind}_dir")("manycl", appauthor=False))
    except RuntimeError:  # no HOME, and nothing is known of the user
        return runtime_folder() / kind


_HINT = "XDG_RUNTIME_DIR names a folder that only its user may use"


def is_own(found: os.stat_result, others: int) -> bool:
    """Return whether this is a folder of the user's, without these rights."""
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & others
