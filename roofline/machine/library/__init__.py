"""Library ceilings: GEMM, convolutions, streams and dispatch overhead of torch.

They are lower than hardware ceilings (on AMD hosts float32 GEMM reaches 40 % of the FMA peak), and
used for predictions.
"""

from __future__ import annotations

from roofline.machine.library.measurement import measure_library as measure_library
