"""Batch norms that could be folded into the convolution before them, or cannot for their place."""

from __future__ import annotations

from roofline.analysis import OperatorRow
from roofline.design.advice.alternatives import is_plain_convolution
from roofline.design.advice.proposals import Proposal, left_out
from roofline.design.advice.subject import Subject
from roofline.foundation.text import counted
from roofline.workload.tensors import Role

_BATCH_NORMS = ("aten.native_batch_norm", "aten._native_batch_norm_legit_no_training")


FOLDABLE = "foldable batch norm"
"""The name of the rule whose findings are tried by folding, in the whole model."""


def foldable_norms(subject: Subject) -> list[Proposal]:
    """Conv→BN: in inference the norm is a scale and a shift, which the weights can take in."""
    return _found(
        subject,
        FOLDABLE,
        [row for row in _norms(subject) if _is_after_convolution(subject, row)],
        "{} directly behind a convolution that nothing else reads, in inference: {}",
        "fold them: torch.nn.utils.fusion.fuse_conv_bn_eval, or all of a model by"
        " torch.fx.experimental.optimization.fuse",
    )


def norms_behind_activations(subject: Subject) -> list[Proposal]:
    """Conv→ReLU→BN: the activation between them keeps the norm from being folded."""
    rows = [row for row in _norms(subject) if _is_after_activation(subject, row)]
    forwards = sum(_is_before_unpadded_convolution(subject, row) for row in rows)
    evidence = "{} behind Conv→activation, where the convolution cannot take them in: {}"
    change = "train it as Conv→BN→activation: the norm can then be folded and costs nothing"
    if forwards:
        evidence += f"; {forwards} in front of a convolution without padding"
        change += "; those in front of a convolution without padding can be folded into that one"
    return _found(subject, "batch norm behind an activation", rows, evidence, change)


def _found(
    subject: Subject, rule: str, rows: list[OperatorRow], evidence: str, change: str
) -> list[Proposal]:
    norms = f"{counted(len(rows), 'batch norm')}"
    return subject.finding(
        rule,
        rows,
        subject.saving_without(rows),
        evidence=evidence.format(norms, subject.share(rows)),
        change=change,
        swaps=left_out(rows),
    )


def _norms(subject: Subject) -> list[OperatorRow]:
    """Batch norms that use the statistics they have learned."""
    if subject.analysis.run.train:
        return []
    return [
        row
        for row in subject.working
        if row.op in _BATCH_NORMS and not row.attributes.get("training", False)
    ]


def fold_pairs(subject: Subject) -> list[tuple[str, str]]:
    """The modules of each convolution, and of the batch norm that it could take in."""
    pairs: list[tuple[str, str]] = []
    for norm in _norms(subject):
        before = subject.writer(norm)
        if before is not None and _is_after_convolution(subject, norm):
            pairs.append((before.module_path, norm.module_path))
    return pairs


def _is_after_convolution(subject: Subject, norm: OperatorRow) -> bool:
    before = subject.writer(norm)
    return (
        before is not None
        and is_plain_convolution(before)
        and _reads_alone(subject, norm, before)
        # What is called twice may have another norm behind it each time, or none.
        and subject.weight_readers[before.inputs[1].storage] == 1
    )


def _is_after_activation(subject: Subject, norm: OperatorRow) -> bool:
    between = subject.writer(norm)
    if between is None or between.type != "pointwise" or not _reads_alone(subject, norm, between):
        return False
    if not all(each.role is Role.PARAMETER for each in between.inputs[1:]):
        # A sum of branches, say; what PReLU reads beside its image are its slopes.
        return False
    before = subject.writer(between)
    return (
        before is not None
        and is_plain_convolution(before)
        and _reads_alone(subject, between, before)
    )


def _is_before_unpadded_convolution(subject: Subject, norm: OperatorRow) -> bool:
    readers = subject.readers(norm)
    return (
        len(readers) == 1
        and is_plain_convolution(readers[0])
        and not any(readers[0].attributes.get("padding") or ())
    )


def _reads_alone(subject: Subject, reader: OperatorRow, writer: OperatorRow) -> bool:
    return [row.index for row in subject.readers(writer)] == [reader.index]
