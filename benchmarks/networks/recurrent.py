"""Recurrent networks with one product per gate, as the cells are written down in articles.

Nothing is merged in them by hand, and they are unrolled over a fixed number of steps: what there
is to gain is left to `roofline optimize`.

    roofline optimize benchmarks/networks/recurrent.py:RNNTC --input 1x20:int64
    roofline optimize benchmarks/networks/recurrent.py:NMT --input 1x10:int64 --input 1x10:int64
    roofline optimize benchmarks/networks/recurrent.py:LSTM256 \\
        --input 1x256 --input 1x256 --input 1x256
"""

from __future__ import annotations

import torch
from torch import nn

HIDDEN = 1024
VOCABULARY = 8192
CLASSES = 2

RNNTC_STEPS = 20
"""Tokens that `RNNTC` reads."""
NMT_STEPS = 10
"""Tokens that the encoder of `NMT` reads, and as many that its decoder does."""


class SimpleRecurrentUnit(nn.Module):
    """One step of an SRU: its three products take the input only, so that steps share no product.

    Lei, Zhang, Wang, Dai, Artzi: *Simple Recurrent Units for Highly Parallelizable Recurrence*,
    EMNLP 2018, in the form without the state in its gates.
    """

    def __init__(self, size: int) -> None:
        super().__init__()
        self.candidate = nn.Linear(size, size, bias=False)
        self.forget = nn.Linear(size, size)
        self.reset = nn.Linear(size, size)

    def forward(self, x: torch.Tensor, c: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Output and state of the step, each of shape (batch, size)."""
        f = torch.sigmoid(self.forget(x))
        r = torch.sigmoid(self.reset(x))
        c = f * c + (1 - f) * self.candidate(x)
        return r * torch.tanh(c) + (1 - r) * x, c


class LongShortTermMemory(nn.Module):
    """One step of an LSTM with eight products: of input and of state for each of four gates."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.of_input = nn.ModuleList(nn.Linear(size, size) for _ in range(4))
        self.of_state = nn.ModuleList(nn.Linear(size, size, bias=False) for _ in range(4))

    def forward(
        self, x: torch.Tensor, h: torch.Tensor, c: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Output and state of the step, each of shape (batch, size)."""
        gates = [of_x(x) + of_h(h) for of_x, of_h in zip(self.of_input, self.of_state, strict=True)]
        forget, keep, candidate, out = gates
        c = torch.sigmoid(forget) * c + torch.sigmoid(keep) * torch.tanh(candidate)
        return torch.sigmoid(out) * torch.tanh(c), c


class RNNTC(nn.Module):
    """Text classification: embedding, one SRU layer of 1024 over 20 tokens, softmax."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, HIDDEN)
        self.cell = SimpleRecurrentUnit(HIDDEN)
        self.classifier = nn.Linear(HIDDEN, CLASSES)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """The probabilities of the classes: tokens of shape (batch, 20)."""
        x = self.embedding(tokens)
        c = x.new_zeros(x.shape[0], HIDDEN)
        h = c
        for step in range(RNNTC_STEPS):
            h, c = self.cell(x[:, step], c)
        return torch.softmax(self.classifier(h), dim=-1)


class NMT(nn.Module):
    """Translation: encoder and decoder, each an embedding and two LSTM layers of 1024.

    The decoder reads the words that it should have said. What makes words of its states, a
    product with the whole vocabulary, is left out, as it is in the article's network.
    """

    def __init__(self) -> None:
        super().__init__()
        self.source = nn.Embedding(VOCABULARY, HIDDEN)
        self.target = nn.Embedding(VOCABULARY, HIDDEN)
        self.encoder = nn.ModuleList(LongShortTermMemory(HIDDEN) for _ in range(2))
        self.decoder = nn.ModuleList(LongShortTermMemory(HIDDEN) for _ in range(2))

    def forward(self, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        """The decoder's outputs, (batch, 10, 1024): tokens of shape (batch, 10) each."""
        read, said = self.source(source), self.target(target)
        zero = read.new_zeros(read.shape[0], HIDDEN)
        states = [(zero, zero), (zero, zero)]
        for step in range(NMT_STEPS):
            _run(self.encoder, read[:, step], states)
        outputs = [_run(self.decoder, said[:, step], states) for step in range(NMT_STEPS)]
        return torch.stack(outputs, dim=1)


def _run(
    cells: nn.ModuleList, x: torch.Tensor, states: list[tuple[torch.Tensor, torch.Tensor]]
) -> torch.Tensor:
    """The last layer's output; the states become those after the step."""
    for layer, cell in enumerate(cells):
        states[layer] = cell(x, *states[layer])
        x = states[layer][0]
    return x


class LSTM256(LongShortTermMemory):
    """One step of an LSTM of size 256: input, output and state of shape (batch, 256)."""

    def __init__(self) -> None:
        super().__init__(256)


class LSTM1024(LongShortTermMemory):
    """One step of an LSTM of size 1024: input, output and state of shape (batch, 1024)."""

    def __init__(self) -> None:
        super().__init__(1024)
