"""The work that is left of a model under the listed rewritings, by hand and by brute force."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import nn

from roofline.workload.rewritings import model_work
from tests.workload.passes import passed, trained

FLOAT = 4


def linears(*widths: int) -> nn.Sequential:
    return nn.Sequential(*(nn.Linear(a, b, bias=False) for a, b in pairwise(widths))).eval()


def flop(model: nn.Module, *inputs: object) -> int:
    return sum(each for _, each in model_work(passed(model, *inputs).records).products)


def test_two_linears_become_one_where_the_value_between_them_is_wide():
    work = model_work(passed(linears(1024, 4096, 1024), (8, 1024)).records)
    assert [each for _, each in work.products] == [2 * 8 * 1024**2]
    assert work.read_byte == FLOAT * (1024**2 + 8 * 1024)
    assert work.written_byte == FLOAT * 8 * 1024


def test_two_linears_stay_two_where_the_value_between_them_is_narrow():
    work = model_work(passed(linears(1024, 64, 1024), (8, 1024)).records)
    assert [each for _, each in work.products] == [2 * 8 * 1024 * 64] * 2
    assert work.read_byte == FLOAT * (2 * 1024 * 64 + 8 * 1024)


def test_a_training_step_by_hand():
    """Weights, their gradients and both moments are written, and what the model gives."""
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
    captured = trained(model, (5, 8), optimizer="adam", loss=torch.sum)
    work = model_work(captured.records)
    parameters = 8 * 16 + 16 + 16 * 4 + 4
    steps, outputs, loss = 4, 5 * 4, 1
    assert work.written_byte == FLOAT * (4 * parameters + steps + outputs + loss)
    assert work.read_byte == FLOAT * 5 * 8
