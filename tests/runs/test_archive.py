"""Files on file systems that lack something; their permissions and names; what is told of a failure."""

import errno
import fcntl
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from sciml.data import archive
from sciml.data.archive import recorded as replaced, write_file
from sciml.errors import FileError
from sciml.runs import RunDirectory, directory as generations, directory as lock

pytestmark = pytest.mark.skipif(os.name != "posix", reason="permissions and links of POSIX")


@pytest.fixture
def umask():
    """Set one that leaves the group's right to write, for as long as the test takes."""
    before = os.umask(0o002)
    yield
    os.umask(before)


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


def failing(monkeypatch, name, number, only=lambda *_: True):
    call = getattr(os, name)

    def fail(*arguments, **options):
        if only(*arguments):
            raise OSError(number, os.strerror(number))
        return call(*arguments, **options)

    monkeypatch.setattr(os, name, fail)


def of_directory(handle):
    return stat.S_ISDIR(os.fstat(handle).st_mode)


@pytest.mark.parametrize("number", [errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS])
def test_a_file_system_without_fsync_of_directories_is_written(tmp_path, monkeypatch, number):
    failing(monkeypatch, "fsync", number, of_directory)
    archive.write_atomic(tmp_path / "a.pt", b"one")
    with RunDirectory(tmp_path / "run") as run:
        for content in (b"one", b"two"):
            run.write("a.pt", content)
    assert (tmp_path / "run" / "a.pt").read_bytes() == b"two"


def test_a_file_that_is_not_flushed_is_refused(tmp_path, monkeypatch):
    (tmp_path / "a.pt").write_bytes(b"old")
    failing(monkeypatch, "fsync", errno.EINVAL)
    with pytest.raises(FileError, match="unchanged"):
        archive.write_atomic(tmp_path / "a.pt", b"new")
    assert (tmp_path / "a.pt").read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["a.pt"]


@pytest.mark.parametrize("number", [errno.EPERM, errno.ENOTSUP, errno.ENOSYS])
def test_permissions_that_cannot_be_changed_do_no_harm(tmp_path, monkeypatch, umask, number):
    path = tmp_path / "a.pt"
    path.write_bytes(b"old")
    path.chmod(0o606)
    failing(monkeypatch, "chmod", number)
    archive.write_atomic(path, b"new")
    assert path.read_bytes() == b"new"


def test_what_is_told_of_a_file_that_has_been_replaced(tmp_path, monkeypatch):
    path = tmp_path / "a.pt"
    path.write_bytes(b"old")
    failing(monkeypatch, "fsync", errno.EIO, of_directory)
    with pytest.raises(FileError, match=r"a\.pt was replaced by the new file, which may not outlast") as caught:
        archive.write_atomic(path, b"new")
    assert "unchanged" not in str(caught.value)
    assert path.read_bytes() == b"new"


def test_permissions_are_kept(tmp_path, umask):
    new = tmp_path / "new.pt"
    archive.write_atomic(new, b"")
    assert mode(new) == 0o664
    for kept in (0o600, 0o640, 0o444, 0o666):
        new.chmod(kept)
        with archive.replaced(new) as beside:
            # Not even while it is being written may others read it.
            assert not mode(beside) & ~kept & 0o077
            beside.write_bytes(b"next")
        assert mode(new) == kept
    os.umask(0o077)
    archive.write_atomic(tmp_path / "private.pt", b"")
    assert mode(tmp_path / "private.pt") == 0o600


@pytest.mark.parametrize("links", [True, False])
def test_generations_of_a_private_file_are_private(tmp_path, monkeypatch, umask, links):
    if not links:
        failing(monkeypatch, "link", errno.EPERM)
    with RunDirectory(tmp_path) as run:
        run.write("a.pt", b"one")
        (tmp_path / "a.pt").chmod(0o600)
        for content in (b"two", b"three"):
            run.write("a.pt", content)
    assert mode(tmp_path / "a.pt") == mode(tmp_path / ".previous" / "a.pt") == 0o600
    assert generations.digest_of(tmp_path / "a.pt") != generations.digest_of(tmp_path / ".previous" / "a.pt")


@pytest.mark.parametrize("write", [archive.write_atomic, write_file])
def test_a_symbolic_link_is_written_through(tmp_path, write):
    (tmp_path / "disk").mkdir()
    target, link = tmp_path / "disk" / "big.pt", tmp_path / "a.pt"
    link.symlink_to("disk/big.pt")
    for content in (b"made", b"replaced"):
        write(link, content)
        assert link.is_symlink()
        assert target.read_bytes() == content
    assert sorted(os.listdir(tmp_path)) == ["a.pt", "disk"]
    assert os.listdir(tmp_path / "disk") == ["big.pt"]


@pytest.mark.parametrize("name", ["a" * 255, "é" * 127, "a" + "é" * 127, "数" * 85, "b" * 251 + ".pt2"])
def test_names_as_long_as_the_file_system_takes(tmp_path, name):
    try:
        (tmp_path / name).write_bytes(b"")
    except OSError:
        pytest.skip("this file system takes shorter names only")
    with replaced(tmp_path / name) as beside:
        assert not archive.orphaned(beside.name)
        assert archive._TEMPORARY.fullmatch(beside.name)
        beside.write_bytes(b"content")
    assert (tmp_path / name).read_bytes() == b"content"
    assert len(os.listdir(tmp_path)) == 1


def test_the_home_directory_is_known_by_its_sign(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    with RunDirectory("~/runs/a") as run:
        run.write("a.pt", b"one")
    assert (tmp_path / "runs" / "a" / "a.pt").is_file()
    assert RunDirectory(Path("~/runs/a")).path == tmp_path / "runs" / "a"
    assert not (tmp_path / "~").exists()


@pytest.mark.parametrize("number", [errno.EIO, errno.ESTALE, errno.EBADF])
def test_a_lock_that_cannot_be_taken_is_not_held_by_somebody(tmp_path, monkeypatch, number):
    def fail(*_, **__):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", fail)
    with pytest.raises(FileError, match=f"cannot lock .*{os.strerror(number)}"):
        lock.lock(tmp_path)
    assert RunDirectory.holder(tmp_path) is None


def test_a_lock_that_is_held_is_told_so(tmp_path):
    code = "import fcntl, sys\nfile = open(sys.argv[1], 'w')\nfcntl.flock(file, fcntl.LOCK_EX)\nprint(flush=True)\ninput()"
    command = [sys.executable, "-c", code, tmp_path / lock.LOCK]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        other.stdout.readline()
        with pytest.raises(FileError, match="is being written by process"):
            lock.lock(tmp_path)
        assert RunDirectory.holder(tmp_path) is not None
        other.communicate(b"\n")
