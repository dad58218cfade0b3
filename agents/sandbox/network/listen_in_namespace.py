"""Opens a listener, sends its descriptor out of the namespace, and becomes the command.

The sandbox runs this text with `python -I -S -E -c`, so it needs no file of ours in there, and it
imports only fast modules. A socket belongs to the namespace of its creation: the proxy accepts
connections on it from outside, and no process stays in between.

Arguments: the descriptor of a socket to send by, the port, and the command.
"""

import _socket
import os
import sys

_, channel, port, *command = sys.argv
listener = _socket.socket(_socket.AF_INET, _socket.SOCK_STREAM)
listener.bind(("127.0.0.1", int(port)))
listener.listen(128)
sent = listener.fileno().to_bytes(4, sys.byteorder)
with_it = (_socket.SOL_SOCKET, _socket.SCM_RIGHTS, sent)
out = _socket.socket(fileno=int(channel))
out.sendmsg([b"\0"], [with_it])
# The listener closes itself; this one was inherited, and the command must not have it.
out.close()
os.execvp(command[0], command)  # noqa: S606 (it was started without one)
