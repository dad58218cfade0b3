"""A parser of server-sent events: bytes in, the data of each event out."""

from collections.abc import Iterator


class SseParser:
    """Cuts a stream into the data of its events.

    Names and ids of events are dropped: all three protocols repeat the type in the data.
    """

    def __init__(self) -> None:
        self._unfinished_line = b""
        self._data: list[bytes] = []

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """Yield the data of each event that this chunk completes."""
        lines = (self._unfinished_line + chunk).splitlines(keepends=True)
        self._unfinished_line = b""
        # The last line may go on in the next chunk, and so may a line end of two bytes.
        if lines and not lines[-1].endswith(b"\n"):
            self._unfinished_line = lines.pop()
        for line in lines:
            if data := self._feed_line(line.rstrip(b"\r\n")):
                yield data

    @property
    def buffered(self) -> int:
        """How many bytes of an unfinished event there are."""
        return len(self._unfinished_line) + sum(map(len, self._data))

    def _feed_line(self, line: bytes) -> bytes:
        """Return the data of the event that this line ends, or nothing."""
        if line.startswith(b"data:"):
            self._data.append(line[5:].removeprefix(b" "))
        if line or not self._data:
            return b""
        data, self._data = b"\n".join(self._data), []
        return data
