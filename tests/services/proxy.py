"""A TCP proxy in front of a Unix socket or a port, whose network can be cut."""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading
import time


class Proxy:
    """Forwards connections to a Unix socket or address; while cut, not a byte goes through."""

    def __init__(
        self, target: str | tuple[str, int], listen: tuple[str, int] = ("127.0.0.1", 0)
    ) -> None:
        self._target = target
        self._listening = socket.create_server(listen)
        self.port: int = self._listening.getsockname()[1]
        self._cut = threading.Event()
        self._over = threading.Event()
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """Let nothing through; connections stay open, without data."""
        self._cut.set()

    def heal(self) -> None:
        """Let all through again, also what was sent meanwhile."""
        self._cut.clear()

    def reset(self) -> None:
        """Close all connections, as a router does that starts again."""
        for pair in self._pairs:
            for one in pair:
                with contextlib.suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)
        self._pairs.clear()

    def close(self) -> None:
        """End it."""
        self._over.set()
        self._cut.clear()
        self._listening.close()
        self.reset()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while not self._over.is_set():
                near, _ = self._listening.accept()
                is_path = isinstance(self._target, str)
                far = socket.socket(socket.AF_UNIX if is_path else socket.AF_INET)
                try:
                    far.connect(self._target)
                except OSError:
                    near.close()
                    continue
                self._pairs.append((near, far))
                threading.Thread(target=self._forward, args=(near, far), daemon=True).start()

    def _forward(self, near: socket.socket, far: socket.socket) -> None:
        with near, far, selectors.DefaultSelector() as ready, contextlib.suppress(OSError):
            ready.register(near, selectors.EVENT_READ, far)
            ready.register(far, selectors.EVENT_READ, near)
            while not self._over.is_set():
                if self._cut.is_set():
                    time.sleep(0.05)
                    continue
                for key, _ in ready.select(0.1):
                    data = key.fileobj.recv(65536)  # type: ignore[union-attr]
                    if not data:
                        return
                    key.data.sendall(data)
