"""What torch itself reaches: matrix products, convolutions, streams, and the cost of a call.

A roof made of these is lower than the hardware's (on AMD hosts float32 products stay at 40 % of the
FMA peak), and it is what predictions need.
"""

from __future__ import annotations

from roofline.machine.library.measurement import measure_library as measure_library
