"""How the process keeps house: memory that was freed stays at hand, the garbage collector looks seldom.

glibc gives the end of its heap back to the kernel as soon as 128 KB of it are free, and takes it again for the
next body: new pages, each zeroed at its first touch. For 100 KB requests that was a quarter of all CPU time.
Other C libraries have no such switch, and need none.

The collector looks whenever 700 objects more have been made than freed: at every few streams that open. It finds
nothing, since what is over is freed at once (`tests/test_cycles.py`). That was a quarter of the CPU of an opening.
"""

from __future__ import annotations

import ctypes
import gc
from typing import Final

#: Parameters of mallopt(3) and their values in bytes.
_OPTIONS: Final = {
    -1: 4 << 20,  # M_TRIM_THRESHOLD: so much may be free at the end of the heap
    -2: 256 << 10,  # M_TOP_PAD: it grows by so much more than is needed
    -3: 1 << 20,  # M_MMAP_THRESHOLD: larger blocks come from the kernel, and go back at once
}


#: So many objects more make the collector look. What a failed health check leaves is found late, not never.
_OBJECTS: Final = 10_000


def keep_house() -> None:
    """Set the thresholds for this process; those of the heap where the C library has them."""
    gc.set_threshold(_OBJECTS, *gc.get_threshold()[1:])
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        for option, value in _OPTIONS.items():
            mallopt(option, value)
