"""What libraries raise on damaged files, told as errors of ours."""

from __future__ import annotations

import contextlib
import errno
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path

from sciml.datasets.probe import PROBER
from sciml.errors import DataError, SciMLError

# What h5py, SciPy and xarray raise when sizes, names and addresses in a file contradict each other.
FOREIGN = (
    OSError,
    RuntimeError,
    LookupError,
    ValueError,
    TypeError,
    ArithmeticError,
    AttributeError,
    AssertionError,
    NameError,
    NotImplementedError,
    EOFError,
    SystemError,
    zlib.error,
)
# Of the file system, not of the content.
_ELSEWHERE = (errno.ENOENT, errno.EACCES, errno.EPERM, errno.EISDIR, errno.ENOTDIR, errno.ENAMETOOLONG, errno.EIO)


@contextlib.contextmanager
def refusals(path: Path, kind: str, *more: type[Exception]) -> Iterator[None]:
    """Run a block that reads a file; what a library raises because of the file's content becomes an error of ours.

    Args:
        path: of the file.
        kind: its format in words, such as ``an HDF5 file``.
        more: a library's own exceptions.

    Raises:
        DataError: the file is damaged, or needs more memory than there is.

    Example:
        >>> import pathlib
        >>> from sciml.datasets.damage import refusals
        >>> with refusals(pathlib.Path("run.h5"), "an HDF5 file"):
        ...     raise KeyError("bad object header version number")
        Traceback (most recent call last):
        sciml.errors.DataError: run.h5 is damaged or not an HDF5 file: bad object header version number; get it again
    """
    foreign: tuple[type[Exception], ...] = (*FOREIGN, *more)
    try:
        yield
    except SciMLError:
        raise
    except MemoryError as error:
        raise DataError(f"{path} asks for more memory than there is: it is too large, or damaged") from error
    except foreign as error:
        if isinstance(error, OSError) and error.errno in _ELSEWHERE:
            raise DataError(f"cannot read {path}: {error.strerror or error}") from error
        words = str(error.args[0]) if isinstance(error, KeyError) and error.args else str(error)
        raise DataError(f"{path} is damaged or not {kind}: {words or type(error).__name__}; get it again") from error


def check_safe(path: Path, names: Iterable[str] | None = None) -> None:
    """Refuse an HDF5 or .mat file that would end or hang the process that reads it; others are left to their reader.

    Args:
        path: of the file.
        names: of the datasets or variables that are about to be read, with what lies on the way to them; none for the root
            or the list of variables alone, by default everything.

    Raises:
        DataError: with what is wrong.

    Example:
        >>> import pathlib, tempfile, h5py
        >>> from sciml.datasets.damage import check_safe
        >>> file = pathlib.Path(tempfile.mkdtemp()) / "run.h5"
        >>> h5py.File(file, "w").close()
        >>> check_safe(file)
    """
    reason = PROBER.probe(path, names)
    if reason is not None:
        raise DataError(f"{path} is damaged: {reason}; it was not opened, get it again")
