"""An analysis as TensorBoard reads it: the graph, scalars and text, as SummaryWriter writes them.

Written without TensorBoard and without torch: a saved analysis is enough.
"""

from __future__ import annotations

from roofline.presentation.tensorboard.events import ONE_MACHINE as ONE_MACHINE
from roofline.presentation.tensorboard.events import event_file as event_file
