"""TLS of the server: its certificate, read again when the files change.

The server offers TLS 1.2 and 1.3, and only HTTP/1.1. If a new certificate cannot be used, the log
says so, and the previous one stays.
"""

import logging
import os
import ssl
from collections.abc import Sequence
from pathlib import Path
from typing import Final, TypeAlias

from orchestrator.ports.errors import ServerSetupError

Version: TypeAlias = tuple[tuple[int, int, int], ...]
CIPHERS: Final = "ECDHE+AESGCM:ECDHE+CHACHA20"
"""The ciphers of TLS 1.2; all of TLS 1.3 have forward secrecy."""
PROTOCOLS: Final = ("http/1.1",)


class Certificate:
    """A certificate and its key, in PEM files."""

    def __init__(self, certificate: Path, key: Path | None, log: logging.Logger) -> None:
        """Read the certificate and its key; `log` gets a warning if a new one cannot be used."""
        self._certificate = certificate
        self._key = key
        self._log = log
        # Before the files are read: a change meanwhile is seen the next time.
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
                self._log.warning("%s; the previous certificate stays in use", exc)
        return self._context

    @property
    def _files(self) -> Sequence[Path]:
        return [self._certificate, *([] if self._key is None else [self._key])]


def _version_of(files: Sequence[Path]) -> Version:
    """Return a value that changes when one of the files does."""
    return tuple(map(_version_of_file, files))


def _version_of_file(file: Path) -> tuple[int, int, int]:
    try:
        found = os.stat(file)  # noqa: PTH116 (for each connection)
    except OSError:
        return (0, 0, 0)
    return (found.st_ino, found.st_size, found.st_mtime_ns)


def load_context(certificate: Path, key: Path | None) -> ssl.SSLContext:
    """Return a context with a certificate, or raise if the certificate cannot be used."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # Only with forward secrecy: a stolen key decrypts no recorded connection.
    context.set_ciphers(CIPHERS)
    # Renegotiation would let a client make the server compute keys again and again.
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
    raise ServerSetupError("the key is encrypted: give a key without a password")
