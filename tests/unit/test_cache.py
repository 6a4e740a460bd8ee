"""The cache of compiled kernels, with real processes that race and die."""

import errno
import json
import os
import signal
import subprocess
import sys
import threading
import time
import warnings
from pathlib import Path

import pytest

import torchmojo.toolchain.cache as module
from torchmojo.errors import TorchmojoWarning
from torchmojo.toolchain.cache import Cache, default_root, open_cache
from torchmojo.toolchain.settings import Settings

KEY = "ab" + "0" * 62
OTHER = "cd" + "1" * 62
SOURCE = str(Path(module.__file__).parents[2])


@pytest.fixture
def cache(tmp_path) -> Cache:
    return Cache(tmp_path / "cache")


def fill(folder: Path) -> None:
    (folder / "k.so").write_bytes(b"x" * 100)


def refuse(folder: Path) -> None:
    raise AssertionError("must not be built again")


def age(path: Path, seconds: float) -> None:
    """Make an entry look as if it was built and last used long ago."""
    marker = path / "entry.json"
    facts = json.loads(marker.read_text())
    facts["created"] -= seconds
    marker.write_text(json.dumps(facts))
    past = time.time() - seconds
    os.utime(marker, (past, past))


def leftovers(cache: Cache) -> list[str]:
    return sorted(p.name for folder in ("tmp", "locks") for p in (cache.root / folder).iterdir())


# --- building and looking up --------------------------------------------------------------------


def test_builds_once_and_finds(cache):
    assert cache.entry(KEY) is None
    assert not cache.root.exists()
    path = cache.build(KEY, fill, "kernels.mojo")
    assert path == cache.root / "ab" / KEY
    assert (path / "k.so").read_bytes() == b"x" * 100
    assert cache.build(KEY, refuse) == path
    assert cache.entry(KEY) == Cache(cache.root).entry(KEY) == path
    assert leftovers(cache) == [KEY]  # the lock's file


def test_folders_belong_to_the_user_alone(cache):
    path = cache.build(KEY, fill)
    for folder in (cache.root, path.parent, path):
        assert folder.stat().st_mode & 0o777 == 0o700


def test_subfolders_in_an_entry(cache):
    def make(folder: Path) -> None:
        (folder / "sub").mkdir()
        (folder / "sub/k.so").write_bytes(b"1")

    path = cache.build(KEY, make)
    assert cache.entry(KEY) == path
    (path / "sub/k.so").unlink()
    assert cache.entry(KEY) is None


def test_key_must_be_a_hash(cache):
    with pytest.raises(ValueError) as caught:
        cache.build("../../etc", fill)
    assert str(caught.value) == "a cache key has hexadecimal digits only, given '../../etc'"


def test_one_build_may_need_another(cache):
    def make(folder: Path) -> None:
        (folder / "k.so").write_bytes((cache.build(OTHER, fill) / "k.so").read_bytes())

    assert cache.entry(cache.build(KEY, make).name)
    assert cache.entry(OTHER)


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, "No space left on device"),
        RuntimeError("compiler failed"),
        KeyboardInterrupt(),
    ],
)
def test_failed_build_leaves_nothing(cache, error):
    def make(folder: Path) -> None:
        fill(folder)
        raise error

    with pytest.raises(type(error)) as caught:
        cache.build(KEY, make)
    assert caught.value is error
    assert cache.entry(KEY) is None
    assert leftovers(cache) == []
    assert cache.list() == []
    assert cache.entry(cache.build(KEY, fill).name)


def test_disk_full_while_writing_the_entry_leaves_nothing(cache, monkeypatch):
    def full(path: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    with monkeypatch.context() as patch:
        patch.setattr(module, "_sync", full)
        with pytest.raises(OSError, match="No space left on device"):
            cache.build(KEY, fill)
    assert cache.entry(KEY) is None
    assert leftovers(cache) == []


@pytest.mark.parametrize("damage", ["truncate", "remove", "garble"])
def test_damaged_entry_is_built_again(cache, damage):
    path = cache.build(KEY, fill)
    if damage == "truncate":
        os.truncate(path / "k.so", 50)
    elif damage == "remove":
        (path / "k.so").unlink()
    else:
        (path / "entry.json").write_text("{")
    assert cache.entry(KEY) is None
    assert cache.build(KEY, fill) == path
    assert cache.entry(KEY) == path
    assert leftovers(cache) == [KEY]


# --- many at once ---------------------------------------------------------------------------------

BUILDER = """
import sys, time
from pathlib import Path
from torchmojo.toolchain.cache import Cache

root, key, log, seconds = sys.argv[1:]

def make(folder):
    (folder / "half").write_text("half")
    with open(log, "a") as file:
        print("start", file=file, flush=True)
    time.sleep(float(seconds))
    (folder / "half").rename(folder / "k.so")

print(Cache(Path(root)).build(key, make), flush=True)
"""


def start(cache: Cache, log: Path, seconds: float) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "-c", BUILDER, cache.root, KEY, log, str(seconds)],
        env={**os.environ, "PYTHONPATH": SOURCE},
        stdout=subprocess.PIPE,
        text=True,
    )


def wait_for(log: Path) -> None:
    deadline = time.monotonic() + 60
    while not (log.exists() and "start" in log.read_text()):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_two_processes_build_once(cache, tmp_path):
    log = tmp_path / "log"
    processes = [start(cache, log, 0.5) for _ in range(2)]
    paths = [process.communicate(timeout=60)[0].strip() for process in processes]
    assert paths == [str(cache.root / "ab" / KEY)] * 2
    assert log.read_text() == "start\n"
    assert cache.entry(KEY)


def test_killed_builder_leaves_no_entry_and_its_files_go(cache, tmp_path):
    log = tmp_path / "log"
    with start(cache, log, 60) as process:
        wait_for(log)
        process.send_signal(signal.SIGKILL)
    assert cache.entry(KEY) is None
    assert [name.split(".")[0] for name in leftovers(cache)] == [KEY, KEY]  # folder and lock
    path = cache.build(KEY, fill)
    assert sorted(p.name for p in path.iterdir()) == ["entry.json", "k.so"]
    assert leftovers(cache) == [KEY]


def test_who_waits_for_a_killed_builder_builds(cache, tmp_path):
    log, second_log = tmp_path / "log", tmp_path / "second"
    with start(cache, log, 60) as first:
        wait_for(log)
        with start(cache, second_log, 0) as second:
            time.sleep(0.3)
            assert not second_log.exists()  # it waits
            first.send_signal(signal.SIGKILL)
            assert second.communicate(timeout=60)[0].strip() == str(cache.root / "ab" / KEY)
    assert second_log.read_text() == "start\n"


def test_threads_build_once(cache):
    built = []

    def make(folder: Path) -> None:
        built.append(folder)
        time.sleep(0.1)
        fill(folder)

    threads = [threading.Thread(target=cache.build, args=(KEY, make)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(built) == 1


def test_waiter_survives_a_failed_build(cache):
    """The failed builder removes the lock's file; the waiter must not hold a lock of nothing."""
    began = threading.Event()

    def fail(folder: Path) -> None:
        began.set()
        time.sleep(0.2)
        raise RuntimeError("compiler failed")

    def first() -> None:
        with pytest.raises(RuntimeError, match="compiler failed"):
            cache.build(KEY, fail)

    thread = threading.Thread(target=first)
    thread.start()
    began.wait()
    cache.build(KEY, fill)
    thread.join()
    assert leftovers(cache) == [KEY]


# --- a folder that cannot be used -----------------------------------------------------------------


def check_substitute(cache: Cache, reason: str) -> None:
    """Expect one warning for two builds, in a folder that only this process uses."""
    with pytest.warns(TorchmojoWarning) as caught:
        path = cache.build(KEY, fill)
    assert [str(warning.message) for warning in caught] == [
        "kernels are compiled again in each process: the cache folder "
        f"{cache.root} cannot be used ({reason}); "
        "set TORCHMOJO_CACHE_DIR to a folder of your own"
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert cache.build(OTHER, fill).parent.parent == path.parent.parent
        assert cache.build(KEY, refuse) == cache.entry(KEY) == path
    assert not path.is_relative_to(cache.root)
    assert path.parent.parent.stat().st_mode & 0o777 == 0o700
    assert {entry.key for entry in cache.list()} == {KEY, OTHER}


def test_folder_below_a_file(tmp_path):
    (tmp_path / "file").touch()
    check_substitute(Cache(tmp_path / "file/cache"), f"{tmp_path}/file: File exists")


def test_folder_is_a_file(tmp_path):
    (tmp_path / "cache").touch()
    check_substitute(Cache(tmp_path / "cache"), "it is not a folder")


def test_read_only_folder(cache, monkeypatch):
    cache.root.mkdir()

    def mkdir(path: Path, *args: object, **options: object) -> None:
        if path.is_relative_to(cache.root):
            raise OSError(errno.EROFS, "Read-only file system", str(path))
        real(path, *args, **options)

    real = Path.mkdir
    monkeypatch.setattr(Path, "mkdir", mkdir)  # root may write anywhere
    check_substitute(cache, f"{cache.root}/locks: Read-only file system")


def test_unwritable_folder(cache, monkeypatch):
    cache.build(KEY, fill)
    cache.clear()
    access = os.access
    monkeypatch.setattr(os, "access", lambda p, mode: p != cache.root and access(p, mode))
    check_substitute(cache, "not writable")


def test_file_system_without_locks(cache, monkeypatch):
    import fcntl

    def flock(descriptor: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", flock)
    check_substitute(cache, "No locks available")


def test_folder_of_another_user(cache, monkeypatch):
    path = cache.build(KEY, fill)
    if os.geteuid() == 0:
        os.chown(cache.root, 4242, -1)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: 4242)
    uid = cache.root.stat().st_uid
    stranger = Cache(cache.root)
    assert stranger.entry(KEY) is None
    check_substitute(stranger, f"it belongs to another user, uid {uid}")
    assert path.exists()


def test_link_of_another_user(cache, tmp_path):
    if os.geteuid() != 0:
        pytest.skip("only root can make a link for another user")
    cache.build(KEY, fill)
    link = tmp_path / "link"
    link.symlink_to(cache.root)
    os.chown(link, 4242, -1, follow_symlinks=False)
    check_substitute(Cache(link), "it belongs to another user, uid 4242")


def test_library_of_another_user(cache):
    if os.geteuid() != 0:
        pytest.skip("only root can give a file away")
    path = cache.build(KEY, fill)
    os.chown(path / "k.so", 4242, -1)
    assert cache.entry(KEY) is None


def test_folder_that_everybody_may_write(cache):
    cache.build(KEY, fill)
    cache.root.chmod(0o777)
    assert cache.entry(KEY) is None
    check_substitute(cache, "everybody may write into it")


def test_unusable_cache_still_serves_what_it_has(cache):
    path = cache.build(KEY, fill)
    (cache.root / "locks" / KEY).unlink()
    (cache.root / "locks").rmdir()
    (cache.root / "locks").touch()
    with pytest.warns(TorchmojoWarning, match="File exists"):
        cache.build(OTHER, fill)
    assert cache.entry(KEY) == path
    assert cache.build(KEY, refuse) == path


def test_substitute_goes_with_the_process(tmp_path):
    (tmp_path / "file").touch()
    script = BUILDER.replace("Cache(Path(root))", "Cache(Path(root, 'below'))")
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script, tmp_path / "file", KEY, os.devnull, "0"],
        env={**os.environ, "PYTHONPATH": SOURCE, "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert Path(done.stdout.strip()).is_relative_to(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


# --- looking after it -----------------------------------------------------------------------------


def test_list_and_size(cache):
    before = time.time()
    path = cache.build(KEY, fill, "kernels.mojo")
    (entry,) = cache.list()
    assert entry[:2] == (KEY, "kernels.mojo")
    assert entry.path == path
    assert entry.bytes == cache.size() == sum(p.stat().st_size for p in path.iterdir())
    assert before <= entry.created <= time.time()
    assert entry.used == pytest.approx(entry.created, abs=5)


def test_list_of_nothing(cache):
    assert cache.list() == []
    assert cache.size() == cache.clear() == 0


def test_last_use_is_written_once_a_day(cache):
    path = cache.build(KEY, fill)
    marker = path / "entry.json"
    hour_ago = time.time() - 3_600
    os.utime(marker, (hour_ago, hour_ago))
    cache.entry(KEY)
    assert marker.stat().st_mtime == pytest.approx(hour_ago)
    os.utime(marker, (hour_ago - 86_400, hour_ago - 86_400))
    cache.entry(KEY)
    assert marker.stat().st_mtime == pytest.approx(time.time(), abs=60)


def test_clear(cache):
    cache.build(KEY, fill)
    cache.build(OTHER, fill)
    size = cache.size()
    assert cache.clear() == size
    assert cache.list() == []
    assert leftovers(cache) == []


def test_trim_takes_what_was_not_used_for_longest(cache):
    keys = [f"{digit}{digit}" + "0" * 62 for digit in "1234"]
    for key, seconds in zip(keys, (300, 500, 100, 400), strict=True):
        age(cache.build(key, fill), seconds)
    each = cache.size() // 4
    assert [entry.key for entry in cache.list()] == [keys[1], keys[3], keys[0], keys[2]]
    freed = cache.trim(2 * each + 40)
    assert freed == pytest.approx(2 * each, abs=40)
    assert [entry.key for entry in cache.list()] == [keys[0], keys[2]]
    assert cache.trim(10**9) == 0


def test_trim_leaves_young_entries(cache):
    age(cache.build(KEY, fill), 59)
    age(cache.build(OTHER, fill), 61)
    cache.trim(0)
    assert [entry.key for entry in cache.list()] == [KEY]


@pytest.mark.parametrize("remove", [lambda cache: cache.trim(0), lambda cache: cache.clear()])
def test_entries_in_use_stay(cache, remove):
    age(cache.build(KEY, fill), 1_000)
    with module._locked(cache.root / "locks" / KEY):
        assert remove(cache) == 0
    assert cache.entry(KEY)
    assert remove(cache) > 0


def test_limit_is_kept_after_each_build(tmp_path):
    cache = Cache(tmp_path / "cache", limit=150)
    age(cache.build(KEY, fill), 1_000)
    cache.build(OTHER, fill)
    assert [entry.key for entry in cache.list()] == [OTHER]


def test_old_leftovers_of_other_keys_are_swept(cache):
    cache.build(KEY, fill)
    past = time.time() - 4_000
    for name in (f"tmp/{OTHER}.x1", "tmp/dead.x2"):
        (cache.root / name).mkdir()
        os.utime(cache.root / name, (past, past))
    (cache.root / "tmp" / f"{OTHER}.young").mkdir()
    (cache.root / "locks" / ("ef" + "2" * 62)).touch()
    os.utime(cache.root / "locks" / ("ef" + "2" * 62), (past, past))
    os.utime(cache.root / "locks" / KEY, (past, past))
    cache.trim(10**9)
    assert leftovers(cache) == [KEY, f"{OTHER}.young"]


def test_leftovers_of_a_running_builder_stay(cache):
    cache.build(KEY, fill)
    work = cache.root / "tmp" / f"{OTHER}.x1"
    work.mkdir()
    past = time.time() - 4_000
    os.utime(work, (past, past))
    with module._locked(cache.root / "locks" / OTHER):
        cache.trim(10**9)
        assert work.exists()


# --- which folder ---------------------------------------------------------------------------------


def test_open_cache_gives_one_object_a_folder(tmp_path):
    settings = Settings(cache_dir=tmp_path, cache_size=5)
    assert open_cache(settings) is open_cache(Settings(cache_dir=tmp_path, cache_size=5))
    assert open_cache(settings).root == tmp_path
    assert open_cache(settings).limit == 5


def test_default_root(monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", "/home/someone/.cache")
    monkeypatch.setenv("HOME", "/home/someone")
    assert default_root().parts[-1] == "torchmojo"
    assert default_root().is_relative_to("/home/someone")
    monkeypatch.delenv("TORCHMOJO_CACHE_DIR", raising=False)
    assert open_cache().root == default_root()
