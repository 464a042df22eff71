# SPDX-License-Identifier: Apache-2.0
# PyArrow's stubs leave much of its types open:
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false
# pyright: reportMissingTypeArgument=false
"""The folder of a journal, and what a plan says of it.

```text
  folder/_journal.json                 which function it is for, and what columns it returns
        /<run>-<task>-<number>.parquet     a commit, or several that were put together
```

The driver opens the folder when a call is made, and the tasks when they begin. Calls without a
journal do not load what reads and writes files: that is 9 MB of each Python worker.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import socket
import threading
import uuid
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from time import sleep
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, cast

import pyarrow as pa

from sparkawait._checks import refuse, require_column
from sparkawait._core import content_keys
from sparkawait.exceptions import ErrorKind
from sparkawait.functions import AsyncFunction, NativeFunction
from sparkawait.journal import Journal

if TYPE_CHECKING:
    from pyarrow import fs

__all__ = [
    "Folder",
    "JournalPlan",
    "check_not_chained",
    "check_rows",
    "folder_of",
    "identity_in",
    "journal_of",
    "reached",
    "stored",
    "whose",
]

_T = TypeVar("_T")
_KIND = ErrorKind.JOURNAL_INVALID
_FORMAT = 1
_ABOUT = "_journal.json"
"""Says what a folder is for. Spark leaves names with `_` out, and the others read `*.parquet`."""
_PATIENCE_SECONDS = 5.0
_LOOKS = 7
"""How often a file is read again that another driver may be writing."""
_SCHEMES = {"s3a": "s3", "s3n": "s3", "gcs": "gs"}
_KNOWN = ("s3", "gs", "abfs", "abfss", "hdfs", "viewfs", "file")


# -- a folder, by what it is on


class Folder:
    """Files by name, that appear as a whole.

    Attributes:
        path: The folder, as messages name it.
    """

    is_local = False

    def __init__(self, path: str, files: fs.FileSystem, root: str) -> None:
        """Takes a file system, and where the folder is on it."""
        self.path, self._files, self._root = path, files, root
        # Others have files that are written in place, and can be renamed.
        self._moves = files.type_name == "hdfs"

    def names(self) -> dict[str, tuple[int | None, int | None]]:
        """Returns the files with their sizes and times, which tell a file from its successor."""
        from pyarrow import fs

        selector = fs.FileSelector(self._root, allow_not_found=True)
        return {
            it.base_name: (it.size, it.mtime_ns)
            for it in cast("list[Any]", self._files.get_file_info(selector))
            if it.type == fs.FileType.File
        }

    def open(self, name: str) -> Any:
        """Returns a file to read from.

        Raises:
            FileNotFoundError: If there is none of this name.
        """
        return self._files.open_input_file(f"{self._root}/{name}")

    def write(self, name: str, data: Any) -> None:
        """Writes a file that nobody sees before it is whole."""
        path = f"{self._root}/{name}"
        beside = f"{self._root}/.{name}" if self._moves else path
        with self._files.open_output_stream(beside) as stream:
            stream.write(data)
        if self._moves:
            self._files.move(beside, path)

    def delete(self, name: str) -> None:
        """Deletes a file, if it is there."""
        with suppress(FileNotFoundError):
            self._files.delete_file(f"{self._root}/{name}")

    def begin(self, about: dict[str, Any]) -> dict[str, Any]:
        """Writes what the folder is for, unless that is known; returns what it says."""
        said = self.about()
        if said is None:
            self._files.create_dir(self._root)
            self.write(_ABOUT, _text(about))
            # Another driver that writes it at the same time writes the same.
            said = about
        return said

    def about(self) -> dict[str, Any] | None:
        """Returns what the folder says that it is for; ``None`` before it says something."""
        for look in range(_LOOKS):
            try:
                with self.open(_ABOUT) as file:
                    said: object = json.loads(bytes(file.read()))
            except FileNotFoundError:
                return None
            except ValueError:
                sleep(0.01 * 2**look)
                continue
            if isinstance(said, dict):
                return cast("dict[str, Any]", said)
            break
        return refuse(f"`{_ABOUT}` of the folder {self.path} of `journal` cannot be read", _KIND)


class LocalFolder(Folder):
    """A folder of this machine, or one that is mounted."""

    is_local = True

    def __init__(self, path: str) -> None:
        """Takes an absolute path."""
        from pyarrow import fs

        super().__init__(path, fs.LocalFileSystem(), path)

    def write(self, name: str, data: Any) -> None:
        """Writes a file that nobody sees before it is whole, and on the disk."""
        beside, path = f"{self._root}/.{name}", f"{self._root}/{name}"
        try:
            with open(beside, "wb") as file:  # noqa: PTH123 - what is next to it is `os`, too
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(beside, path)  # noqa: PTH105
        except BaseException:
            with suppress(OSError):
                os.unlink(beside)  # noqa: PTH108
            raise
        _sync(self._root)

    def begin(self, about: dict[str, Any]) -> dict[str, Any]:
        """Writes what the folder is for, with a mark that no other folder has, unless it is known.

        One of the drivers that do so at the same time is the first, and the others read it.
        """
        os.makedirs(self._root, exist_ok=True)  # noqa: PTH103
        said = self.about()
        if said is not None:
            return said
        token = uuid.uuid4().hex
        beside, path = f".{_ABOUT}.{token}", f"{self._root}/{_ABOUT}"
        self.write(beside, _text({**about, "mark": token}))
        try:
            os.link(f"{self._root}/{beside}", path)
        except FileExistsError:
            pass
        except OSError:  # Some mounted file systems have no links.
            with suppress(FileExistsError), open(path, "xb") as file:  # noqa: PTH123
                file.write(_text({**about, "mark": token}))
        self.delete(beside)
        return self.about() or about


def _text(about: dict[str, Any]) -> bytes:
    return json.dumps(about, indent=1, sort_keys=True).encode()


def _sync(path: str) -> None:
    with suppress(OSError):  # where folders cannot be opened
        folder = os.open(path, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


@cache
def folder_of(path: str) -> Folder:
    """Returns the folder of an absolute path or a URL.

    Raises:
        ConfigurationError: If this cannot be one.
    """
    scheme, separator, rest = path.partition("://")
    if not separator:
        return LocalFolder(path)
    scheme = _SCHEMES.get(scheme, scheme)
    if scheme == "file":
        return LocalFolder("/" + rest.partition("/")[2])
    if scheme not in _KNOWN:
        known = ", ".join(_KNOWN)
        refuse(
            f"`journal` is at {scheme}://, and only {known} are known; where it is mounted, as a"
            " volume of Databricks is, give that path",
            _KIND,
        )
    from pyarrow import fs

    try:
        files, root = fs.FileSystem.from_uri(f"{scheme}://{rest}")
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        told = str(error).replace(f"{scheme}://{rest}", _shown(path))
        refuse(f"`journal` is at {_shown(path)}, which PyArrow does not open: {told}", _KIND)
    return Folder(_shown(path), _in_one_request(files), root.rstrip("/"))


def _in_one_request(files: fs.FileSystem) -> fs.FileSystem:
    """Returns a file system that writes a small file by one request, where it has the choice."""
    if files.type_name != "s3":
        return files
    made: Any = type(files)
    with suppress(TypeError, ValueError, KeyError):  # PyArrow before 18 has no such option
        _, (options,) = cast("tuple[Any, tuple[dict[str, Any]]]", files.__reduce__())
        return made(**{**options, "allow_delayed_open": True})
    return files


def _shown(path: str) -> str:
    """Returns a URL without a password, and without what follows the path."""
    head, separator, rest = path.partition("://")
    if not separator:
        return path
    # A secret may have slashes in it.
    return f"{head}://{rest.partition('?')[0].rpartition('@')[2]}"


def whose(path: str) -> str:
    """Returns whose rights open a folder, as far as this process knows."""
    scheme, separator, _ = path.partition("://")
    if not separator or scheme == "file":
        return f"the user {os.getuid()}"
    told = {
        "s3": ("AWS_ACCESS_KEY_ID", "AWS_PROFILE", "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_ROLE_ARN"),
        "gs": ("GOOGLE_APPLICATION_CREDENTIALS",),
        "hdfs": ("HADOOP_USER_NAME",),
    }.get(_SCHEMES.get(scheme, scheme), ())
    if "@" in path.partition("://")[2].partition("/")[0]:
        return "the credentials in the URL"
    set_here = [name for name in told if name in os.environ]
    if set_here:
        return f"the credentials of {' and '.join(set_here)}"
    if not told:
        return "the credentials that PyArrow finds"
    return f"the credentials that PyArrow finds, as {', '.join(told)} are not set"


def within(seconds: float, work: Callable[[], _T]) -> _T:
    """Returns what `work` returns.

    Raises:
        TimeoutError: If it takes longer; it is left to itself then.
    """
    done: list[Any] = []

    def run() -> None:
        try:
            done.append((work(), None))
        except BaseException as error:  # noqa: BLE001 - raised again where it is waited for
            done.append((None, error))

    thread = threading.Thread(target=run, name="sparkawait-journal", daemon=True)
    thread.start()
    thread.join(seconds)
    if not done:
        msg = f"it took more than {seconds:g} s"
        raise TimeoutError(msg)
    value, error = done[0]
    if error is not None:
        raise error
    return value


# -- what a plan says of it


@dataclass(frozen=True)
class JournalPlan:
    """What the tasks of a call are told of its journal.

    Attributes:
        path: The folder: an absolute path or a URL.
        function: The name of the function.
        version: What tells its results from those of the same name.
        identity: The question, and who gets it, as keys have it.
        columns: The columns that the function reads; ``None`` for all but the `hidden` ones.
        hidden: Columns of the input that no row has.
        shows_times: Whether an instant is another question in another time zone.
        is_one: Whether results have a mark behind them, as those of a column function.
        max_age: How old results may be, in seconds.
        keeps_failures: Whether a row that has failed is not called for.
        keep_input: Whether the folder has what rows came with.
        mark: What the folder says if it is this one; ``None`` where it can be no other.
    """

    path: str = field(repr=False)  # which may have a password in it
    function: str
    version: str
    identity: bytes = field(repr=False)  # which has headers
    columns: tuple[str, ...] | None
    hidden: tuple[str, ...]
    shows_times: bool
    is_one: bool
    max_age: float | None
    keeps_failures: bool
    keep_input: bool
    mark: str | None

    def read_from(self, schema: pa.Schema) -> list[int]:
        """Returns the positions of the columns that a key is made of."""
        names = schema.names
        if self.columns is None:
            read = [at for at, name in enumerate(names) if name not in self.hidden]
        else:
            read = [at for name in self.columns for at in schema.get_all_field_indices(name)]
        # The order of columns does not change the question.
        return sorted(read, key=lambda at: (names[at], at))

    def folder(self) -> Folder:
        """Returns the folder, in a task.

        Raises:
            ConfigurationError: If it is not the one that the driver has opened.
        """
        return _checked_folder(self.path, self.mark)


def check_rows(journal: JournalPlan, rows: pa.Schema) -> None:
    """Checks that rows have keys.

    Raises:
        ConfigurationError: If a column of the key is missing, or of a type without an encoding.
    """
    for column in journal.columns or ():
        require_column(rows, column, "Journal.key")
    fields = [rows.field(at) for at in journal.read_from(rows)]
    arrays = [pa.nulls(0, it.type) for it in fields]
    content_keys(pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields)), b"")
    if journal.keep_input:
        _check_storable(rows)


def check_not_chained(journals: Iterable[JournalPlan | None]) -> None:
    """Checks that no call of a chain has a journal.

    Raises:
        ConfigurationError: If one has.
    """
    for it in journals:
        if it is not None:
            refuse(
                f"`chain=True` does not go with the `journal` of `{it.function}`; leave one of them"
                " out"
            )


@cache
def _checked_folder(path: str, mark: str | None) -> Folder:
    folder = reached(path, lambda: folder_of(path))
    said = reached(path, folder.about)
    if said is None or (mark is not None and said.get("mark") != mark):
        refuse(
            f"the folder {folder.path} of `journal` on the host {socket.gethostname()} is not the"
            " one that the driver has opened; give a folder that all executors share, such as"
            " s3://bucket/folder",
            _KIND,
        )
    return folder


def reached(path: str, work: Callable[[], _T], *, at_once: bool = True) -> _T:
    """Returns what `work` returns, which asks for a folder.

    Args:
        path: The folder.
        work: What asks for it.
        at_once: Whether it takes no time unless something is wrong.

    Raises:
        ConfigurationError: If that takes too long, or is refused.
    """
    try:
        return within(_PATIENCE_SECONDS, work) if at_once else work()
    except (OSError, pa.ArrowException) as error:
        if isinstance(error, MemoryError):
            raise
        refuse(
            f"the folder {_shown(path)} of `journal` cannot be opened on the host"
            f" {socket.gethostname()} with {whose(path)}: {error}",
            _KIND,
        )


def identity_in(plan: JournalPlan, schema: pa.Schema) -> bytes:
    """Returns the question, and who gets it, for rows of `schema`."""
    if not plan.shows_times:
        return plan.identity
    zones = sorted(
        {zone for at in plan.read_from(schema) for zone in _zones(schema.field(at).type)}
    )
    return b"\0".join([plan.identity, *(it.encode() for it in zones)])


def _zones(data_type: Any) -> list[str]:
    if pa.types.is_timestamp(data_type):
        return [data_type.tz] if data_type.tz else []
    children = [data_type.field(at) for at in range(data_type.num_fields)]
    return [zone for child in children for zone in _zones(child.type)]


def journal_of(
    journal: Journal,
    function: AsyncFunction | NativeFunction,
    schema: pa.Schema,
    *,
    hidden: tuple[str, ...],
    is_one: bool,
) -> JournalPlan:
    """Opens the folder of a call, and returns what tasks are told of it.

    Args:
        journal: What the user said.
        function: What is called.
        schema: The columns that it returns.
        hidden: Columns of the input that no row has.
        is_one: Whether a row has one result, as of a column function.

    Raises:
        ConfigurationError: If the journal does not go with the function, the folder is another
            one's, or cannot be opened.
    """
    asks = function.asks if isinstance(function, NativeFunction) else None
    is_known = asks is not None
    if isinstance(function, NativeFunction) and (journal.key or journal.version is not None):
        given = "key" if journal.key else "version"
        refuse(
            f"`{given}` of Journal is for Python functions; `{function.name}` says what it reads"
            " and what it asks for",
            _KIND,
        )
    if not isinstance(function, NativeFunction) and journal.version is None:
        place = _shown(str(journal.path))
        refuse(
            f"`journal` needs a version of `{function.name}`, as nobody knows whether a Python"
            f" function has changed: write journal=sparkawait.Journal({place!r},"
            " version=1), and another one when its results change",
            _KIND,
        )
    columns = journal.columns or None
    if is_known:
        columns = tuple(dict.fromkeys(cast("NativeFunction", function).input_columns))
    _check_storable(schema)
    returned = _shape(schema)
    said = {"asks": asks, "function": function.name, "returns": returned}
    if is_known and (zones := sorted({it for field in schema for it in _zones(field.type)})):
        said["zones"] = zones  # in which texts without one are read
    if is_known and (required := getattr(function, "required", ())):
        said["required"] = sorted(required)  # a null in one of them is a failure
    if journal.version is not None:
        said["version"] = str(journal.version)
    identity = json.dumps(said, sort_keys=True).encode()
    digest = hashlib.sha256(identity).hexdigest()[:8]
    path = _absolute(str(journal.path))
    about = {"format": _FORMAT, "function": function.name, "returns": returned}
    found = reached(path, lambda: folder_of(path).begin(about))
    _check_same(path, found, about)
    return JournalPlan(
        path=path,
        function=function.name,
        version=digest if journal.version is None else str(journal.version),
        identity=identity,
        columns=columns,
        hidden=hidden,
        shows_times=isinstance(function, NativeFunction) and function.writes_texts,
        is_one=is_one and not isinstance(function, NativeFunction),
        max_age=cast("float | None", journal.max_age),
        keeps_failures=journal.again == "none",
        keep_input=journal.keep_input,
        mark=found.get("mark"),
    )


def stored(results: pa.Schema, inputs: pa.Schema | None = None) -> pa.Schema:
    """Returns the columns of the files of a journal.

    Args:
        results: The columns that the function returns.
        inputs: The columns of the input, if they are kept.
    """
    result = pa.struct([pa.field(it.name, nullable_type(it.type)) for it in results])
    fields: list[pa.Field[Any]] = [
        pa.field("key", pa.binary(16), nullable=False),
        pa.field("function", pa.string()),
        pa.field("version", pa.string()),
        pa.field("at", pa.timestamp("us", "UTC")),
        pa.field("attempt", pa.int32()),
        pa.field("kind", pa.string()),
        pa.field("message", pa.string()),
        pa.field("result", pa.list_(result)),
        pa.field("cost", pa.float64()),
        pa.field("status", pa.int32()),
        pa.field("request_id", pa.string()),
    ]
    if inputs is not None:
        kept = [pa.field(it.name, nullable_type(it.type)) for it in inputs]
        fields.append(pa.field("input", pa.struct(kept)))
    return pa.schema(fields)


def nullable_type(data_type: Any) -> Any:
    """Returns a type as files have it: nullable, with instants in UTC, laid out as it is."""
    if pa.types.is_timestamp(data_type):
        return pa.timestamp(data_type.unit, data_type.tz and "UTC")
    if pa.types.is_struct(data_type):
        fields = [data_type.field(at) for at in range(data_type.num_fields)]
        return pa.struct([pa.field(it.name, nullable_type(it.type)) for it in fields])
    if pa.types.is_large_list(data_type):
        return pa.large_list(nullable_type(data_type.value_type))
    if pa.types.is_list(data_type):
        return pa.list_(nullable_type(data_type.value_type))
    if pa.types.is_map(data_type):
        return pa.map_(nullable_type(data_type.key_type), nullable_type(data_type.item_type))
    return data_type


def _check_storable(schema: pa.Schema) -> None:
    from pyarrow import parquet

    for column in schema:
        try:
            parquet.write_table(pa.schema([column]).empty_table(), pa.BufferOutputStream())
        except pa.ArrowException as error:
            refuse(f"`journal` cannot keep column `{column.name}`: {error}", ErrorKind.TYPE_REFUSED)


def _absolute(path: str) -> str:
    scheme, separator, rest = path.partition(":")
    if separator and scheme in {*_KNOWN, *_SCHEMES, "dbfs"}:
        if not rest.startswith("/"):
            refuse(f"`journal` is at {scheme}: without a slash; write {scheme}:///..", _KIND)
        if not rest.startswith("//"):
            path = f"{scheme}://{rest}"  # as Hadoop and Spark write it, too
    if "://" in path:
        return path.rstrip("/")
    return os.path.abspath(Path(path).expanduser())  # noqa: PTH100


def _shape(schema: pa.Schema) -> list[list[str]]:
    return [[it.name, _named(it.type)] for it in schema]


def _named(data_type: Any) -> str:
    """Names a type without what makes no difference: zones, and what may be null."""
    return re.sub(r"(?<=, tz)=[^\]]*| not null", "", str(data_type))


def _check_same(path: str, found: dict[str, Any], wanted: dict[str, Any]) -> None:
    if found.get("format") != _FORMAT:
        refuse(
            f"the folder {_shown(path)} of `journal` has format {found.get('format')!r}, and this"
            f" version of sparkawait reads {_FORMAT}",
            _KIND,
        )
    for what, shown in (("function", str), ("returns", _columns)):
        if found.get(what) != wanted[what]:
            _refuse_other(path, what, shown(found.get(what)), shown(wanted[what]))


def _refuse_other(path: str, what: str, found: str, wanted: str) -> NoReturn:
    told = {
        "function": f"is for the function `{found}`, and the call is of `{wanted}`",
        "returns": f"is for results of {found}, and the function returns {wanted}",
    }[what]
    refuse(f"the folder {_shown(path)} of `journal` {told}; give another folder", _KIND)


def _columns(returned: Any) -> str:
    with suppress(TypeError, ValueError):
        return ", ".join(f"`{name} {data_type}`" for name, data_type in returned)
    return repr(returned)
