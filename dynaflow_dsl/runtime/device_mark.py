"""The kernel of `device_clock`; importing it needs Triton."""

# Triton evaluates annotations, so those of the kernel stay out of strings.
import triton
import triton.language as tl
from triton.language.extra.cuda import globaltimer


@triton.jit(do_not_specialize=["slot", "gate"])
def dfsc_mark(stamps, releases, slot, gate):  # type: ignore[no-untyped-def]
    """Wait until `releases[slot]` nanoseconds after `stamps[gate]`, write the time.

    The gate itself waits from when it begins.
    """
    if tl.program_id(0) == 0:
        length = tl.load(releases + slot)
        now = globaltimer()
        start = now
        if slot != gate:
            start = tl.load(stamps + gate)
        while now - start < length:
            now = globaltimer()
        tl.store(stamps + slot, now)
