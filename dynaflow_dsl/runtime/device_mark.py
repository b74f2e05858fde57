"""The kernel of `device_clock`; importing it needs Triton."""

# Triton evaluates annotations, so those of the kernel stay out of strings.
import triton
import triton.language as tl
from triton.language.extra.cuda import globaltimer


@triton.jit(do_not_specialize=["slot"])  # type: ignore[untyped-decorator]
def dfsc_mark(stamps, delays, slot):  # type: ignore[no-untyped-def]
    """Wait for `delays[slot]` nanoseconds, then write the time to `stamps[slot]`."""
    if tl.program_id(0) == 0:
        length = tl.load(delays + slot)
        start = globaltimer()
        now = start
        while now - start < length:
            now = globaltimer()
        tl.store(stamps + slot, now)
