"""Programs for seccomp: by them the kernel judges each system call of a command.

The launcher imports this by itself, and each of its commands waits for that.
"""

import os
import sys

# Architecture: its name for seccomp, the numbers of socket and socketpair, and those of keyrings
# (add_key, request_key, keyctl).
ARCHITECTURES = {
    "x86_64": (0xC000003E, 41, 53, (248, 249, 250)),
    "aarch64": (0xC00000B7, 198, 199, (217, 218, 219)),
}
_IO_URING_SETUP = 425
_X32 = 0x40000000
_LOAD, _AT_LEAST = 0x20, 0x35
AND, EQUAL, HAS_BITS, RETURN = 0x54, 0x15, 0x45, 0x06
ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
_EPERM, _ENOSYS = 1, 38
_VSOCK = 40


def can_filter() -> bool:
    """Return whether we know the system calls of this machine."""
    return sys.platform == "linux" and os.uname().machine in ARCHITECTURES


class SystemCallFilter:
    """A program for seccomp. It begins with the calls that are forbidden to every command.

    These are: other kinds of system calls, which it does not know; io_uring, which creates sockets
    without a judged call; and keyrings, which belong to the user and to no namespace.
    """

    def __init__(self, machine: str) -> None:
        self.code = b""
        architecture, self.socket, self.socketpair, keyrings = ARCHITECTURES[machine]
        self.step(_LOAD, 4)
        self.step(EQUAL, architecture, 1, 0)
        self.forbid(_ENOSYS)
        self.step(_LOAD, 0)
        self.step(_AT_LEAST, _X32, 0, 1)
        self.forbid(_ENOSYS)
        for number in (_IO_URING_SETUP, *keyrings):
            self.step(EQUAL, number, 0, 1)
            self.forbid(_ENOSYS)

    def step(self, code: int, value: int, if_true: int = 0, if_false: int = 0) -> None:
        """Add a step. It holds the number of the system call, until it loads an argument."""
        self.code += (
            code.to_bytes(2, sys.byteorder)
            + bytes([if_true, if_false])
            + value.to_bytes(4, sys.byteorder)
        )

    def forbid(self, error: int = _EPERM) -> None:
        """Add a step that ends the system call with an error."""
        self.step(RETURN, _ERRNO | error)

    def argument(self, number: int) -> None:
        """Add a step that loads an argument: the low half of a 64-bit word."""
        low = 0 if sys.byteorder == "little" else 4
        self.step(_LOAD, 16 + 8 * number + low)


def namespace_filter(machine: str) -> bytes:
    """Return the program for a command in namespaces: it forbids calls outside of namespaces."""
    rules = SystemCallFilter(machine)
    rules.step(EQUAL, rules.socket, 1, 0)
    rules.step(RETURN, ALLOW)
    # Sockets of virtual machines.
    rules.argument(0)
    rules.step(EQUAL, _VSOCK, 0, 1)
    rules.forbid()
    rules.step(RETURN, ALLOW)
    return rules.code
