"""What belongs to threads: several runs at once are threads of one process."""

from __future__ import annotations

from threading import RLock, Thread, current_thread
from typing import Generic, TypeVar

T = TypeVar("T")


class OfThreads(Generic[T]):
    """Things that belong to the threads that hold them; those of one thread are nested."""

    def __init__(self) -> None:
        self._lock = RLock()  # a finalizer may look here at any time
        self._held: list[tuple[Thread, T]] = []

    def hold(self, one: T) -> None:
        """Give a thing to this thread, on top of what it holds."""
        with self._lock:
            self._held.append((current_thread(), one))

    def drop(self, one: T) -> None:
        """Take a thing from its thread, and what that holds on top of it; no-op without it."""
        with self._lock:
            places = [place for place, (_, held) in enumerate(self._held) if held is one]
            if places:
                owner, _ = self._held[places[-1]]
                above = self._held[places[-1] :]
                self._held[places[-1] :] = [held for held in above if held[0] is not owner]

    def all(self) -> list[T]:
        """Return what all threads hold, the newest last."""
        with self._lock:
            return [one for _, one in self._held]

    def of_this_thread(self) -> list[T]:
        """Return what this thread holds, the newest last."""
        with self._lock:
            return [one for thread, one in self._held if thread is current_thread()]

    def of_ended_threads(self) -> list[T]:
        """Return what threads held when they ended."""
        with self._lock:
            return [one for thread, one in self._held if not thread.is_alive()]

    def newest(self) -> list[T]:
        """Return the newest thing of each live thread, or else of each thread that has ended."""
        with self._lock:
            live = {thread: one for thread, one in self._held if thread.is_alive()}
            return list((live or dict(self._held)).values())
