"""TLS of the server: its certificate, read again when the files change.

The server offers TLS 1.2 and 1.3, and no protocol but HTTP/1.1. A new certificate that cannot be
used is told in the log, and the one before it stays.
"""

import logging
import os
import ssl
from collections.abc import Sequence
from pathlib import Path
from typing import Final, TypeAlias

from orchestrator.kernel.errors import ServerSetupError

Version: TypeAlias = tuple[tuple[int, int, int], ...]
PROTOCOLS: Final = ("http/1.1",)


class Certificate:
    """A certificate and its key, in PEM files."""

    def __init__(self, certificate: Path, key: Path | None, log: logging.Logger) -> None:
        """Read them.

        Args:
            certificate: the certificate, and the ones that lead to its root.
            key: the key; None: it is in the file of the certificate.
            log: is told of a new certificate that cannot be used.

        Raises:
            ServerSetupError: they cannot be used.
        """
        self._certificate = certificate
        self._key = key
        self._log = log
        # Looked at first: what is written meanwhile is read again.
        self._version = _version_of(self._files)
        self._context = load_context(certificate, key)

    def context(self) -> ssl.SSLContext:
        """Return the context of the next connection."""
        version = _version_of(self._files)
        if version != self._version:
            self._version = version
            try:
                self._context = load_context(self._certificate, self._key)
            except ServerSetupError as exc:
                self._log.warning("%s; the one before it is used", exc)
        return self._context

    @property
    def _files(self) -> Sequence[Path]:
        return [self._certificate, *([] if self._key is None else [self._key])]


def _version_of(files: Sequence[Path]) -> Version:
    """Return what changes when one of the files does."""
    return tuple(map(_version_of_file, files))


def _version_of_file(file: Path) -> tuple[int, int, int]:
    try:
        found = os.stat(file)  # noqa: PTH116 (for each connection)
    except OSError:
        return (0, 0, 0)
    return (found.st_ino, found.st_size, found.st_mtime_ns)


def load_context(certificate: Path, key: Path | None) -> ssl.SSLContext:
    """Return a context with a certificate, or raise if that cannot be used."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # A client could have the server compute keys again and again on one connection.
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    context.set_alpn_protocols(PROTOCOLS)
    try:
        context.load_cert_chain(certificate, key, password=_no_password)
    except OSError as exc:
        files = f"{certificate}" + ("" if key is None else f" with the key {key}")
        raise ServerSetupError(
            f"the certificate {files} cannot be used: {exc.strerror or exc}; it must be PEM, with"
            " its key"
        ) from exc
    return context


def _no_password() -> str:
    raise ServerSetupError("the key is encrypted: give one that needs no password")
