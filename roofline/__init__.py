"""FLOP, bytes, rooflines and predictions for PyTorch models.

Names are loaded on first use: ``import roofline`` imports neither torch nor pandas nor matplotlib.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from roofline.analysis import Analysis as Analysis
    from roofline.analysis import Coverage as Coverage
    from roofline.analysis import OperatorRow as OperatorRow
    from roofline.analysis import Totals as Totals
    from roofline.analysis import read_analysis as read_analysis
    from roofline.analysis.drawing import plot as plot
    from roofline.counters import Crosscheck as Crosscheck
    from roofline.design.advice.result import Advice as Advice
    from roofline.design.comparison.result import Comparison as Comparison
    from roofline.design.compilation import Compilation as Compilation
    from roofline.design.gate.cost import Cost as Cost
    from roofline.design.gate.result import Check as Check
    from roofline.errors import RooflineError as RooflineError
    from roofline.latency.validation import Validation as Validation
    from roofline.llm.result import Language as Language
    from roofline.machine.catalog import load_hardware as load_hardware
    from roofline.machine.difference import hardware_change as hardware_change
    from roofline.machine.hardware import HardwareProfile as HardwareProfile
    from roofline.pipeline.advising import advise as advise
    from roofline.pipeline.analyses import analyze as analyze
    from roofline.pipeline.analyses import analyze_compiled as analyze_compiled
    from roofline.pipeline.analyses import compare_machines as compare_machines
    from roofline.pipeline.calibrations import calibrate as calibrate
    from roofline.pipeline.checking import check as check
    from roofline.pipeline.comparisons import compare as compare
    from roofline.pipeline.crosschecks import crosscheck as crosscheck
    from roofline.pipeline.exporting import export as export
    from roofline.pipeline.language import analyze_language as analyze_language
    from roofline.pipeline.machine_times import learn_times as learn_times
    from roofline.pipeline.measuring import measure_hardware as measure_hardware
    from roofline.pipeline.optimizing import optimize as optimize
    from roofline.pipeline.predictions import predict as predict
    from roofline.pipeline.profiles import profile as profile
    from roofline.pipeline.quantizing import quantize as quantize
    from roofline.pipeline.scaling import scale as scale
    from roofline.pipeline.sweeps import sweep as sweep
    from roofline.pipeline.traces import read_trace as read_trace
    from roofline.pipeline.tracking import track as track
    from roofline.pipeline.validations import validate as validate
    from roofline.quantization.result import Quantization as Quantization
    from roofline.result import Result as Result
    from roofline.result import read_result as read_result
    from roofline.scaling.result import Scaling as Scaling
    from roofline.substitution.result import Optimization as Optimization
    from roofline.substitution.rules.rule import Rule as Rule
    from roofline.substitution.rules.rule import register_rule as register_rule
    from roofline.traces.comparison import TraceComparison as TraceComparison
    from roofline.traces.result import TraceAnalysis as TraceAnalysis
    from roofline.workload.formulas.registry import Flop as Flop
    from roofline.workload.formulas.registry import formula as formula
    from roofline.workload.inputs import Inputs as Inputs
    from roofline.workload.models.files.formats import StoredModel as StoredModel
    from roofline.workload.work import Work as Work

_NAMES = {
    "roofline.analysis": "Analysis Coverage OperatorRow Totals read_analysis",
    "roofline.analysis.drawing": "plot",
    "roofline.counters": "Crosscheck",
    "roofline.design.advice.result": "Advice",
    "roofline.design.comparison.result": "Comparison",
    "roofline.design.compilation": "Compilation",
    "roofline.design.gate.cost": "Cost",
    "roofline.design.gate.result": "Check",
    "roofline.errors": "RooflineError",
    "roofline.llm.result": "Language",
    "roofline.latency.validation": "Validation",
    "roofline.machine.catalog": "load_hardware",
    "roofline.machine.difference": "hardware_change",
    "roofline.machine.hardware": "HardwareProfile",
    "roofline.pipeline.advising": "advise",
    "roofline.pipeline.analyses": "analyze analyze_compiled compare_machines",
    "roofline.pipeline.calibrations": "calibrate",
    "roofline.pipeline.checking": "check",
    "roofline.pipeline.comparisons": "compare",
    "roofline.pipeline.crosschecks": "crosscheck",
    "roofline.pipeline.exporting": "export",
    "roofline.pipeline.language": "analyze_language",
    "roofline.pipeline.machine_times": "learn_times",
    "roofline.pipeline.measuring": "measure_hardware",
    "roofline.pipeline.optimizing": "optimize",
    "roofline.pipeline.predictions": "predict",
    "roofline.pipeline.profiles": "profile",
    "roofline.pipeline.quantizing": "quantize",
    "roofline.pipeline.scaling": "scale",
    "roofline.pipeline.sweeps": "sweep",
    "roofline.pipeline.tracking": "track",
    "roofline.pipeline.traces": "read_trace",
    "roofline.pipeline.validations": "validate",
    "roofline.quantization.result": "Quantization",
    "roofline.result": "Result read_result",
    "roofline.scaling.result": "Scaling",
    "roofline.substitution.result": "Optimization",
    "roofline.substitution.rules.rule": "Rule register_rule",
    "roofline.traces.comparison": "TraceComparison",
    "roofline.traces.result": "TraceAnalysis",
    "roofline.workload.formulas.registry": "Flop formula",
    "roofline.workload.inputs": "Inputs",
    "roofline.workload.models.files.formats": "StoredModel",
    "roofline.workload.work": "Work",
}
_HOME = {name: home for home, names in _NAMES.items() for name in names.split()}

__all__ = [*sorted(_HOME), "__version__"]  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("roofline")
    if name not in _HOME:
        raise AttributeError(f"module 'roofline' has no attribute '{name}'")
    value = getattr(importlib.import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
