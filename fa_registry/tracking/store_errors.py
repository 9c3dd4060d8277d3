"""Kinds of store errors and the advice that is shown for each kind.

The errors come from MLflow, SQLAlchemy, sqlite and the operating system.
"""

from __future__ import annotations

import contextlib
import errno
import re
import socket
import sqlite3
from collections.abc import Iterator

import requests
from mlflow.exceptions import MlflowException, RestException
from mlflow.utils.credentials import read_mlflow_creds

from fa_registry.errors import StoreError

HELD, FULL, BARRED, FAILING, DAMAGED, LACKING = "held", "full", "barred", "failing", "damaged", "lacking"
TOO_LONG = "too long"
AWAY, FAULTY, UNKNOWN, FORBIDDEN, KEYLESS = "away", "faulty", "unknown", "forbidden", "keyless"  # server errors
OF_SYSTEM = {
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT, errno.EFBIG), FULL),
    **dict.fromkeys((errno.EACCES, errno.EPERM, errno.EROFS), BARRED),
    errno.EIO: FAILING,
    errno.ENAMETOOLONG: TOO_LONG,
}
OF_SQLITE = {
    **dict.fromkeys((sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED), HELD),
    **dict.fromkeys((sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM), BARRED),
    **dict.fromkeys((sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB), DAMAGED),
    sqlite3.SQLITE_FULL: FULL,
    sqlite3.SQLITE_IOERR: FAILING,
}
OF_HTTP = {401: UNKNOWN, 403: FORBIDDEN, **dict.fromkeys((502, 503, 504), AWAY)}
OF_MLFLOW = {"UNAUTHENTICATED": UNKNOWN, "PERMISSION_DENIED": FORBIDDEN, "TEMPORARILY_UNAVAILABLE": AWAY}
NOT_THERE = (
    ConnectionError,
    TimeoutError,
    socket.gaierror,
    requests.exceptions.ConnectionError,
    requests.exceptions.Timeout,
    requests.exceptions.RetryError,
    requests.exceptions.ChunkedEncodingError,  # a server that ended in the middle of an answer
)
# Seconds to wait for a server. A server that responds with errors usually does so until its operator repairs the server.
WAITED_FOR = {AWAY: 300.0, FAULTY: 60.0}
BUCKETS = ("boto3", "botocore", "google", "azure")  # libraries of buckets, each imported only when it is used
# in the messages of these libraries
KEYS = re.compile("credential|AccessDenied|InvalidAccessKey|SignatureDoesNotMatch|ExpiredToken", re.I)
# Messages of PostgreSQL's driver, which has no error code without a connection. ANSWERED means that the server responded.
ANSWERED = re.compile("FATAL: (?!.*(starting up|shutting down|in recovery|administrator command))", re.S)
CUT = re.compile(
    "connection to server|could not (connect|translate)|connection (has been|already) closed|server closed|FATAL: "
)
BROKEN = "500 error responses"  # urllib3's message for a faulty server; 502 to 504 mean an unreachable server
OF_FILES = re.compile(r"list artifacts in \w+://")  # a server reports its bucket's error with its own error code
ASKED = re.compile(r"/mlflow(?:-artifacts)?/([\w/.-]+)")  # in MLflow's message: the endpoint
KEPT = "data that were written before are kept"
TO_DO = {
    HELD: f"another process locks the database; {KEPT}. Wait for that process or end it, then repeat the command",
    FULL: f"{KEPT}. Free some disk space, or increase the limit on the size of files, then repeat the command",
    BARRED: f"{KEPT}. Make the folder and its files readable and writable, then repeat the command",
    FAILING: f"{KEPT}. Check the disk (a limit on the size of files gives the same error), then repeat the command",
    TOO_LONG: f"{KEPT}. Use a shorter name of the file or folder, then repeat the command",
    LACKING: f"{KEPT}. Install the missing library, then repeat the command",
    DAMAGED: "the database is damaged. Copy its folder first; `sqlite3 mlflow.db .recover` then prints the data that can be read",
    AWAY: f"{KEPT}. Check that the server is running and that its address is correct, then repeat the command",
    FAULTY: f"{KEPT}. The server's log shows the cause, such as wrong keys for its bucket, or a full disk or database. Repair the "
    "server, then repeat the command",
    UNKNOWN: f"{KEPT}. Set MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD; the server's administrator creates users",
    FORBIDDEN: f"{KEPT}. A user with the permission MANAGE on the experiment, or the server's administrator, can grant the "
    "permission EDIT (docs/team-server.md)",
    KEYLESS: f"{KEPT}. Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or the keys of another service. If an MLflow server "
    "stores the files (--artifacts-destination, docs/team-server.md), set the keys for the server; its clients need no keys",
}
SAYS = {AWAY: "does not respond", FAULTY: "responds with errors"}  # by kind; all other kinds: "reports an error"
ADDED = re.compile(r"\n\[SQL:|\n\(Background on this error")
EXPECTED_STORE = "expected a database or a server (sqlite:///mlflow.db, postgresql://…, http://…)"
UNSUPPORTED = "got unsupported URI"  # in MLflow's message, which also lists stores that this package refuses
LONGEST = 400  # characters of another program's message


class StoreRefusal(StoreError):
    """Error that a store reported, with advice for the user.

    Attributes:
        kind: kind of the error, a key of TO_DO; empty if the kind is unknown.
        code: MLflow's error code, such as RESOURCE_DOES_NOT_EXIST.
    """

    def __init__(self, subject: str, error: BaseException):
        root, self.kind = _root(error)
        self.code = str(getattr(error, "error_code", ""))
        reported = f"{subject} {SAYS.get(self.kind, 'reports an error')}: {_statement(root, self.kind)}"
        super().__init__("; ".join([reported, *([TO_DO[self.kind]] if self.kind else [])]))


@contextlib.contextmanager
def refused(subject: str, *kinds: type[Exception]) -> Iterator[None]:
    """Convert system errors and errors of these types to StoreRefusal, with `subject` as first words."""
    try:
        yield
    except BrokenPipeError:  # the reader of a standard stream has ended; this is no error of a disk or a store
        raise
    except Exception as error:
        if isinstance(error, (OSError, sqlite3.Error, ImportError, *kinds)) or _library(error) in BUCKETS:
            raise StoreRefusal(subject, error) from error
        raise


def _root(error: BaseException) -> tuple[BaseException, str]:
    """Return the first error with a known kind in the chain of causes, and its kind."""
    cause: BaseException | None = error
    while cause is not None:
        driver_error = getattr(cause, "orig", None) or cause  # SQLAlchemy's errors contain the driver's error
        kind = _of_server(driver_error) or _of_bucket(driver_error) or _of_database(driver_error)
        code = getattr(driver_error, "sqlite_errorcode", 0) & 0xFF  # the lower byte; the rest is the variant
        kind = kind or OF_SQLITE.get(code) or OF_SYSTEM.get(getattr(driver_error, "errno", None) or 0)
        # MLflow imports a bucket's library when it first uses the bucket
        kind = LACKING if isinstance(driver_error, ImportError) else kind
        if kind:
            return driver_error, kind
        cause = cause.__cause__ or cause.__context__
    return error, ""


def _of_server(error: BaseException) -> str:
    """Return the kind of a server's error: AWAY if it cannot be reached, empty if the kind is unknown."""
    status = getattr(getattr(error, "response", None), "status_code", 0)
    is_response = isinstance(error, MlflowException) and str(error).startswith("API request")
    if isinstance(error, RestException) or is_response:  # MLflow uses these codes for a database too
        kind = OF_MLFLOW.get(error.error_code, "")
        return KEYLESS if kind in (UNKNOWN, FORBIDDEN) and OF_FILES.search(str(error)) else kind
    if status in OF_HTTP:
        return OF_HTTP[status]
    if isinstance(error, requests.exceptions.RetryError) and BROKEN in str(error):
        return FAULTY
    is_untrusted = isinstance(error, requests.exceptions.SSLError)  # waiting does not repair a certificate
    is_broken_pipe = isinstance(error, BrokenPipeError)  # from a standard stream; servers cause other errors
    return AWAY if isinstance(error, NOT_THERE) and not (is_untrusted or is_broken_pipe) else ""


def _of_bucket(error: BaseException) -> str:
    if _library(error) not in BUCKETS:
        return ""
    is_away = re.search("Connect|Timeout", type(error).__name__)
    return AWAY if is_away else KEYLESS if KEYS.search(f"{type(error).__name__} {error}") else ""


def _of_database(error: BaseException) -> str:
    """Return AWAY if a database server cannot be reached, otherwise an empty string."""
    text = str(error)
    is_gone = _library(error) == "psycopg2" and CUT.search(text) and not ANSWERED.search(text)
    return AWAY if is_gone else ""


def _library(error: BaseException) -> str:
    return type(error).__module__.partition(".")[0]


def _statement(error: BaseException, kind: str = "") -> str:
    """Return the error message on one line, without the additions of SQLAlchemy."""
    if kind in (UNKNOWN, FORBIDDEN):
        user = read_mlflow_creds().username
        endpoint = ASKED.search(str(error))
        login_problem = (
            f"it has no user {user!r} with this password" if user else "it requires a user name and a password"
        )
        return (
            login_problem
            if kind == UNKNOWN
            else f"user {user!r} has no permission for {endpoint[1] if endpoint else 'this request'}"
        )
    if kind in WAITED_FOR and isinstance(error, requests.exceptions.RequestException) and error.args:
        reason = getattr(error.args[0], "reason", None)  # urllib3's reason, which begins with the object that failed
        return str(reason or error.args[0]).rpartition(": ")[2].rstrip("')\"")
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror} ({error.filename})" if error.filename else error.strerror
    if UNSUPPORTED in str(error):
        return EXPECTED_STORE
    text = " ".join(ADDED.split(str(error))[0].split()) or type(error).__name__
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"
