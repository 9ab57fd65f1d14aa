"""An analysis as TensorBoard reads it: graph, scalars and text, as SummaryWriter writes them.

Written with TensorBoard's own messages and without torch: a saved analysis is enough.
"""

from __future__ import annotations

from roofline.presentation.tensorboard.events import check_event_file as check_event_file
from roofline.presentation.tensorboard.events import event_file as event_file
