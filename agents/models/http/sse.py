"""A parser of server-sent events: bytes in, the data of each event out. Its cost is linear."""

from collections.abc import Iterator


class SseParser:
    """Cuts a stream into the data of its events.

    Names and ids of events are dropped: all three protocols repeat the type in the data.
    """

    def __init__(self) -> None:
        self.lines = 0
        """How many lines there were."""
        self.buffered = 0
        """How many bytes of an unfinished event there are."""
        self._unfinished_line: list[bytes] = []
        self._data: list[bytes] = []

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """Yield the data of each event that this chunk completes."""
        pieces = self._unfinished_line
        if pieces and pieces[-1].endswith(b"\r"):
            # A line end of two bytes may lie on both sides.
            chunk = b"\r" + chunk
            pieces[-1] = pieces[-1][:-1]
            self.buffered -= 1
        lines = chunk.splitlines(keepends=True)
        # The last line may go on in the next chunk, and so may its line end.
        rest = lines.pop() if lines and not lines[-1].endswith(b"\n") else b""
        if lines and pieces:
            # Joined once, when the line is whole.
            self.buffered -= sum(map(len, pieces))
            lines[0] = b"".join((*pieces, lines[0]))
            pieces.clear()
        if rest:
            pieces.append(rest)
            self.buffered += len(rest)
        self.lines += len(lines)
        for line in lines:
            if data := self._feed_line(line.rstrip(b"\r\n")):
                yield data

    def _feed_line(self, line: bytes) -> bytes:
        """Return the data of the event that this line ends, or nothing."""
        if line.startswith(b"data:"):
            self._data.append(line[5:].removeprefix(b" "))
            self.buffered += len(self._data[-1])
        if line or not self._data:
            return b""
        data = b"\n".join(self._data)
        self.buffered -= sum(map(len, self._data))
        self._data.clear()
        return data
