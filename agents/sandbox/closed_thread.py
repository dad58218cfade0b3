"""A thread that may start one program and nothing else: its processes have no files and no network.

Linux restricts single threads, and a new process inherits the restrictions of its thread. So a
program that a library starts is confined without a launcher: a new thread closes itself, starts the
program, and ends. Where the kernel has no Landlock, the thread keeps all rights.
"""

import ctypes
import os
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from orchestrator.agents.sandbox.system_calls import (
    ALLOW,
    AND,
    EQUAL,
    RETURN,
    SystemCallFilter,
    can_filter,
)

T = TypeVar("T")

LIBRARIES: Final = ("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/nix/store", "/gnu/store")
LOADER_CACHE: Final = "/etc/ld.so.cache"
_PR_SET_SECCOMP, _PR_SET_NO_NEW_PRIVS = 22, 38
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
# Rights on files (landlock.h), by the version of Landlock that added them.
_EXECUTE, _WRITE_FILE, _READ_FILE = 1, 2, 4
_RIGHTS: Final = ((1, (1 << 13) - 1), (2, 1 << 13), (3, 1 << 14), (5, 1 << 15))
_TCP, _HAS_TCP = 3, 4
_SIGNALS_AND_ABSTRACT_SOCKETS, _HAS_SCOPES = 3, 6
_STREAM, _TYPE_MASK = 1, 0xF


def run_closed(work: Callable[[], T], program: str) -> T:
    """Run a function in a new thread that can read no file but a program and system libraries."""

    def close_and_run() -> T:
        _close_this_thread(program)
        return work()

    # A thread of trio would be used again.
    with ThreadPoolExecutor(max_workers=1) as one_thread:
        return one_thread.submit(close_and_run).result()


def can_close() -> bool:
    """Return whether the kernel can restrict a thread."""
    return sys.platform == "linux" and _landlock_version(ctypes.CDLL(None)) > 0


def _landlock_version(libc: ctypes.CDLL) -> int:
    version: int = libc.syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), 1)
    return version


def _close_this_thread(program: str) -> None:
    if not can_close():
        return
    libc = ctypes.CDLL(None, use_errno=True)
    version = _landlock_version(libc)

    def call(result: int) -> int:
        if result < 0:
            raise OSError(ctypes.get_errno(), "the thread of a program cannot be restricted")
        return result

    handled = sum(rights for since, rights in _RIGHTS if version >= since)
    attributes = [handled]
    attributes += [_TCP] if version >= _HAS_TCP else []
    attributes += [_SIGNALS_AND_ABSTRACT_SOCKETS] if version >= _HAS_SCOPES else []
    words = b"".join(it.to_bytes(8, sys.byteorder) for it in attributes)
    call(libc.prctl(_PR_SET_NO_NEW_PRIVS, *map(ctypes.c_ulong, (1, 0, 0, 0))))
    ruleset = call(libc.syscall(_CREATE_RULESET, words, ctypes.c_size_t(len(words)), 0))
    readable = (os.path.realpath(program), *LIBRARIES, LOADER_CACHE)
    rules = [(path, _EXECUTE | _READ_FILE) for path in readable]
    for path, rights in (*rules, (os.devnull, _READ_FILE | _WRITE_FILE)):
        try:
            file = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except FileNotFoundError:
            continue
        rule = rights.to_bytes(8, sys.byteorder) + file.to_bytes(4, sys.byteorder, signed=True)
        call(libc.syscall(_ADD_RULE, ruleset, 1, rule, 0))
        os.close(file)
    call(libc.syscall(_RESTRICT_SELF, ruleset, 0))
    os.close(ruleset)
    if can_filter():
        _forbid_sockets(libc, call)


def _forbid_sockets(libc: ctypes.CDLL, call: Callable[[int], int]) -> None:
    """Forbid new sockets, because Landlock judges TCP and abstract ones alone.

    A pair of streams is allowed: it reaches nobody else. A pair of datagram sockets can send to any
    path.
    """
    rules = SystemCallFilter(os.uname().machine)
    rules.step(EQUAL, rules.socket, 0, 1)
    rules.forbid()
    rules.step(EQUAL, rules.socketpair, 1, 0)
    rules.step(RETURN, ALLOW)
    rules.argument(1)
    rules.step(AND, _TYPE_MASK)
    rules.step(EQUAL, _STREAM, 1, 0)
    rules.forbid()
    rules.step(RETURN, ALLOW)
    code = ctypes.create_string_buffer(rules.code)

    class Program(ctypes.Structure):
        _fields_ = (("length", ctypes.c_ushort), ("steps", ctypes.c_void_p))

    filter_ = Program(len(rules.code) // 8, ctypes.addressof(code))
    call(libc.prctl(_PR_SET_SECCOMP, *map(ctypes.c_ulong, (2, ctypes.addressof(filter_), 0, 0))))
