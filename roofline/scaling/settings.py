"""How a model is trained on several ranks."""

from __future__ import annotations

from dataclasses import dataclass

from roofline.foundation.text import counted
from roofline.scaling.collectives import ALGORITHMS, Algorithm


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How a model is trained on several ranks.

    ``ranks`` is how many there are, each with a copy of the model; ``algorithm`` how they add up;
    ``accumulate`` how many passes each makes before gradients are sent; ``bucket_bytes`` from how
    many bytes on a bucket is full (None: torch's limits); ``sharded``: each rank keeps a part of
    the optimizer's states; ``checkpointed`` are the modules that run again in the backward pass.

    Raises:
        ValueError: a number below 1, or an algorithm that there is not.
    """

    ranks: int
    algorithm: Algorithm = "ring"
    accumulate: int = 1
    bucket_bytes: int | None = None
    sharded: bool = False
    checkpointed: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        numbers = (self.ranks, self.accumulate, self.bucket_bytes or 1)
        if min(numbers) < 1:
            raise ValueError(f"ranks, passes and bytes of buckets are at least 1, got {numbers}")
        if self.algorithm not in ALGORITHMS:
            raise ValueError(f"there are {', '.join(ALGORITHMS)}, got '{self.algorithm}'")

    @property
    def words(self) -> str:
        """What is not as by default: ``"8 ranks · ring all-reduce · …"``."""
        parts = [
            f"{counted(self.ranks, 'rank')}",
            f"{self.algorithm} all-reduce",
            f"gradients of {self.accumulate} passes added up" if self.accumulate > 1 else "",
            "optimizer states shared out" if self.sharded else "",
            f"{len(self.checkpointed)} modules run again for the backward pass"
            if self.checkpointed
            else "",
        ]
        return " · ".join(filter(None, parts))
