"""Limits a command, and waits for all that it starts, in a process of its own.

Its arguments are `SETTINGS -- ARGV`.

It exists because Linux restricts a process from inside, and a threaded process cannot run code
between fork and exec. It has three processes:

* the leader, which its starter waits for: it ends as the command ends;
* the supervisor, which adopts every orphan of the command and ends after the last one, so that
  nothing leaves the tree of its processes, wherever it goes;
* the command, which is limited before it begins.

It imports one small module of ours and as little else as possible, since each command waits for it.
"""

import ctypes
import os
import resource
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal

    from orchestrator.agents.sandbox.system_calls import (
        ALLOW,
        AND,
        EQUAL,
        HAS_BITS,
        RETURN,
        SystemCallFilter,
        can_filter,
    )
else:
    import _signal as signal  # the other one imports five times as much

    # The folder of this file is all that is searched of ours.
    from system_calls import ALLOW, AND, EQUAL, HAS_BITS, RETURN, SystemCallFilter, can_filter

_LIBC = ctypes.CDLL(None, use_errno=True)
_IS_LINUX = sys.platform == "linux"
_PR_SET_SECCOMP, _PR_CAPBSET_DROP = 22, 24
_PR_SET_CHILD_SUBREAPER, _PR_SET_NO_NEW_PRIVS = 36, 38
# The capabilities of root over files, which Landlock judges: CHOWN, DAC_OVERRIDE, FOWNER, FSETID.
_KEPT_RIGHTS = (0, 1, 3, 4)
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_RULE_PATH, _RULE_PORT = 1, 2
_FOR_LEADER = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
# Python ignores these.
_FOR_COMMAND = (*_FOR_LEADER, signal.SIGPIPE, signal.SIGXFSZ)

# Rights on files (landlock.h).
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1, 2, 4, 8
_REFER, _TRUNCATE, _IOCTL = 1 << 13, 1 << 14, 1 << 15
_BASIC = (1 << 13) - 1
_ON_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL
RIGHTS = {
    "list": _READ_DIR,
    "read": _EXECUTE | _READ_FILE | _READ_DIR,
    "use": _READ_FILE | _WRITE_FILE | _IOCTL,
    "write": _BASIC | _REFER | _TRUNCATE,
}
_BIND_TCP, _CONNECT_TCP = 1, 2
_SCOPED = 3  # abstract sockets and signals
# The versions of Landlock that have TCP, and signals and abstract sockets.
_HAS_TCP, _HAS_SCOPES = 4, 6

# The numbers of prlimit64 and of the calls that send, with the argument that has their flags.
_PRLIMIT = {"x86_64": 302, "aarch64": 261}
_SENDING = {"x86_64": ((44, 3), (46, 2), (307, 3)), "aarch64": ((206, 3), (211, 2), (269, 3))}
_MSG_FASTOPEN = 0x20000000
_EINVAL = 22
_UNIX, _INET, _INET6, _NETLINK = 1, 2, 10, 16
_STREAM, _DATAGRAM, _TYPE_MASK = 1, 2, 0xF
_DEFAULT_PROTOCOL, _TCP = 0, 6


def landlock_version() -> int:
    """Return the version of Landlock that the kernel has; 0 is none."""
    if not _IS_LINUX:
        return 0
    version: int = _LIBC.syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), 1)
    return max(0, version)


def _call(name: str, result: int) -> int:
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, f"{name}: {os.strerror(error)}")
    return result


def _prctl(option: int, *values: int) -> None:
    longs = [ctypes.c_ulong(value) for value in (*values, 0, 0, 0, 0)[:4]]
    _call("prctl", _LIBC.prctl(option, *longs))


def _words(*numbers: int) -> bytes:
    """Return numbers as the 64-bit words of a structure."""
    return b"".join(number.to_bytes(8, sys.byteorder) for number in numbers)


def _drop_rights() -> None:
    """Drop what root may do to the system: load modules, read the memory of others."""
    try:
        for number in range(64):
            if number not in _KEPT_RIGHTS:
                _prctl(_PR_CAPBSET_DROP, number)
    except OSError as exc:
        # The kernel has no more of them.
        if exc.errno != _EINVAL:
            raise


def _restrict(rules: list[tuple[str, int]], ports: list[int], *, has_network: bool) -> None:
    """Restrict this process to the rights on these paths, and to these TCP ports."""
    version = landlock_version()
    handled = _BASIC
    handled |= _REFER if version >= 2 else 0
    handled |= _TRUNCATE if version >= 3 else 0
    handled |= _IOCTL if version >= 5 else 0
    net = _BIND_TCP | _CONNECT_TCP if version >= _HAS_TCP and not has_network else 0
    attributes = [handled]
    if version >= _HAS_TCP:
        attributes.append(net)
    if version >= _HAS_SCOPES:
        attributes.append(_SCOPED)
    words = _words(*attributes)
    ruleset = _call(
        "landlock", _LIBC.syscall(_CREATE_RULESET, words, ctypes.c_size_t(len(words)), 0)
    )
    for path, rights in rules:
        try:
            file = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except OSError:
            continue  # it is gone, or this user cannot even reach it
        opened = f"/proc/self/fd/{file}"
        if rights & _WRITE_FILE and os.readlink(opened) != path:
            os.close(file)
            continue  # a link was made of it since, which leads elsewhere
        allowed = handled if os.path.isdir(opened) else _ON_FILES
        rule = _words(rights & handled & allowed)
        rule += file.to_bytes(4, sys.byteorder, signed=True)
        _call("landlock", _LIBC.syscall(_ADD_RULE, ruleset, _RULE_PATH, rule, 0))
        os.close(file)
    if net:
        for port in ports:
            rule = _words(_CONNECT_TCP, port)
            _call("landlock", _LIBC.syscall(_ADD_RULE, ruleset, _RULE_PORT, rule, 0))
    _call("landlock", _LIBC.syscall(_RESTRICT_SELF, ruleset, 0))
    os.close(ruleset)


def _filter_sockets(*, has_network: bool) -> None:
    """Forbid the sockets that Landlock does not judge: by path, UDP, and rarer kinds."""
    machine = os.uname().machine
    rules = SystemCallFilter(machine)
    step, argument, forbid = rules.step, rules.argument, rules.forbid
    # The limits of another process: one that has used its time is killed.
    step(EQUAL, _PRLIMIT[machine], 0, 4)
    argument(0)
    step(EQUAL, 0, 1, 0)
    forbid()
    step(RETURN, ALLOW)
    if not has_network:
        # The calls that connect as they send, which Landlock does not see.
        for number, flags in _SENDING[machine]:
            step(EQUAL, number, 0, 4)
            argument(flags)
            step(HAS_BITS, _MSG_FASTOPEN, 0, 1)
            forbid()
            step(RETURN, ALLOW)
    step(EQUAL, rules.socketpair, 0, 5)
    # A pair of datagram sockets can send to any path.
    argument(1)
    step(AND, _TYPE_MASK)
    step(EQUAL, _DATAGRAM, 0, 1)
    forbid()
    step(RETURN, ALLOW)
    step(EQUAL, rules.socket, 1, 0)
    step(RETURN, ALLOW)
    argument(0)
    step(EQUAL, _NETLINK, 0, 1)
    step(RETURN, ALLOW)
    step(EQUAL, _INET, 2, 0)
    step(EQUAL, _INET6, 1, 0)
    forbid()
    if not has_network:
        argument(1)
        step(AND, _TYPE_MASK)
        step(EQUAL, _STREAM, 1, 0)
        forbid()
        argument(2)
        step(EQUAL, _DEFAULT_PROTOCOL, 2, 0)
        step(EQUAL, _TCP, 1, 0)
        forbid()
    step(RETURN, ALLOW)
    code = ctypes.create_string_buffer(rules.code)

    class Program(ctypes.Structure):
        _fields_ = [("length", ctypes.c_ushort), ("steps", ctypes.c_void_p)]

    filter_ = Program(len(rules.code) // 8, ctypes.addressof(code))
    _prctl(_PR_SET_SECCOMP, 2, ctypes.addressof(filter_))


def _count_processes() -> int:
    """Return how many processes and threads this user has: the kernel limits their sum."""
    count = 0
    user = os.getuid()
    try:
        names = os.listdir("/proc")
    except OSError:
        return 0
    for name in names:
        if name.isdecimal():
            try:
                found = os.stat(f"/proc/{name}/task")
            except OSError:
                continue
            if found.st_uid == user:
                count += found.st_nlink - 2
    return count


def _limit(name: str, number: int) -> None:
    kind = getattr(resource, f"RLIMIT_{name}")
    if name == "NPROC":
        number += _count_processes()
    _, most = resource.getrlimit(kind)
    if most != resource.RLIM_INFINITY:
        number = min(number, most)
    resource.setrlimit(kind, (number, number))


def _ignore_output() -> None:
    null = os.open(os.devnull, os.O_RDWR)
    for file in (0, 1, 2):
        os.dup2(null, file)
    os.close(null)


class _Settings:
    """The arguments before `--`, each of them `NAME=VALUE`."""

    def __init__(self, arguments: list[str]) -> None:
        self._values: dict[str, list[str]] = {}
        for argument in arguments:
            name, _, value = argument.partition("=")
            self._values.setdefault(name, []).append(value)

    def all(self, name: str) -> list[str]:
        return self._values.get(name, [])

    def pairs(self, name: str) -> list[tuple[str, str]]:
        """Return values of the form `WORD:TEXT`."""
        split = (value.partition(":") for value in self.all(name))
        return [(word, text) for word, _, text in split]

    def has(self, name: str) -> bool:
        return name in self._values


def _become_command(settings: _Settings, argv: list[str], group: int) -> None:
    for number in _FOR_COMMAND:
        signal.signal(number, signal.SIG_DFL)
    os.setpgid(0, group)
    for name in settings.all("unset"):
        os.environ.pop(name, None)
    for name, value in settings.pairs("set"):
        os.environ[name] = value
    for kind, limit in settings.pairs("limit"):
        _limit(kind, int(limit))
    if settings.has("landlock") and os.geteuid() == 0:
        _drop_rights()
    if _IS_LINUX:
        _prctl(_PR_SET_NO_NEW_PRIVS, 1)
    if settings.has("landlock"):
        has_network = settings.has("network")
        rules = [(path, RIGHTS[name]) for name, path in settings.pairs("rule")]
        ports = [int(port) for port in settings.all("port")]
        _restrict(rules, ports, has_network=has_network)
        if can_filter():
            _filter_sockets(has_network=has_network)
    os.execve(argv[0], argv, os.environ)


def _supervise(settings: _Settings, argv: list[str], group: int, report: int) -> None:
    """Run the command, report how it ended, and wait for all that it left behind."""
    # A signal to the group of the command must not end this.
    os.setpgid(0, 0)
    if _IS_LINUX:
        _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    for folder in settings.all("temporary"):
        os.mkdir(folder, mode=0o700)
    command = os.fork()
    if not command:
        try:
            os.close(report)
            _become_command(settings, argv, group)
        except Exception as exc:
            os.write(2, f"the command was not started: {exc}\n".encode())
        finally:
            os._exit(127)
    _ignore_output()
    while True:
        try:
            pid, status = os.wait()
        except ChildProcessError:
            break
        if pid == command:
            try:
                os.write(report, str(status).encode())
            except BrokenPipeError:
                pass  # the leader was killed
            os.close(report)
    for folder in settings.all("temporary"):
        _remove(folder)


def _remove(folder: str) -> None:
    """Remove a folder with all that is in it, as far as possible."""
    for top, folders, files in os.walk(folder, topdown=False):
        for name in (*folders, *files):
            path = os.path.join(top, name)
            try:
                os.unlink(path) if name in files or os.path.islink(path) else os.rmdir(path)
            except OSError:
                pass
    try:
        os.rmdir(folder)
    except OSError:
        pass


def main() -> None:
    """Run the command of the arguments, and end as it ends."""
    if sys.argv[1:] == ["--version"]:
        print(landlock_version(), int(can_filter()))
        return
    cut = sys.argv.index("--")
    settings, argv = _Settings(sys.argv[1:cut]), sys.argv[cut + 1 :]
    for ignored in _FOR_LEADER:
        signal.signal(ignored, signal.SIG_IGN)
    reading, writing = os.pipe()
    supervisor = os.fork()
    if not supervisor:
        os.close(reading)
        try:
            # That of the leader, which another process may lead.
            _supervise(settings, argv, os.getpgrp(), writing)
        except Exception as exc:
            os.write(2, f"the command is not supervised: {exc}\n".encode())
        finally:
            os._exit(0)
    os.close(writing)
    _ignore_output()
    status = int(os.read(reading, 32) or b"32512")
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if number not in {signal.SIGKILL, signal.SIGSTOP}:
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    os._exit(os.waitstatus_to_exitcode(status))
