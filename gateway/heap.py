"""Keeps memory that was freed at hand for the next large body.

glibc gives the end of its heap back to the kernel as soon as 128 KB of it are free, and takes it again for the
next body: new pages, each zeroed at its first touch. For 100 KB requests that was a quarter of all CPU time.
Other C libraries have no such switch, and need none.
"""

from __future__ import annotations

import ctypes
from typing import Final

#: Parameters of mallopt(3) and their values in bytes.
_OPTIONS: Final = {
    -1: 4 << 20,  # M_TRIM_THRESHOLD: so much may be free at the end of the heap
    -2: 256 << 10,  # M_TOP_PAD: it grows by so much more than is needed
    -3: 1 << 20,  # M_MMAP_THRESHOLD: larger blocks come from the kernel, and go back at once
}


def keep_heap() -> None:
    """Set the thresholds for this process, where the C library has them."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        for option, value in _OPTIONS.items():
            mallopt(option, value)
