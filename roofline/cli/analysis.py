"""Commands analyze, profile, predict, advise, trace and show."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from roofline.cli import candidates
from roofline.cli.options import (
    LAYERS,
    MACHINE,
    MEASURING,
    PASS,
    QUICK,
    REPORT,
    VIEW,
    VIEW_WITH_KERNELS,
    FileName,
    Layers,
    Output,
    command,
    flag,
    given_options,
    model_argument,
    option,
    output_pack,
    run_pack,
    top_option,
    value,
)
from roofline.cli.streams import print_stderr, progress_bar
from roofline.core.blocks import View
from roofline.errors import IncompleteError, InputError

if TYPE_CHECKING:
    from roofline.analysis import Analysis

TRACE = "Trace"
_FORMATS = ".json .csv .md .html .png .svg"


def check_analysis_files(output: Output, *, is_measured: bool = True) -> None:
    """Refuse output files of an analysis that cannot be written, before any work is done."""
    from roofline.analysis import Analysis
    from roofline.analysis.chrome_trace import NOT_MEASURED
    from roofline.analysis.event_file import check_event_file

    output.check(Analysis)
    for path in output.files:
        if path.name.lower().endswith(".trace.json") and not is_measured:
            raise InputError(f"{path}: {NOT_MEASURED}")
        if path.name.lower().endswith(".tfevents"):
            check_event_file(path)


def fraction(_context: click.Context, parameter: click.Parameter, text: str | None) -> float | None:
    """Return the fraction written as a percentage."""
    if text is None:
        return None
    try:
        value = float(text.removesuffix("%")) / 100
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1:
        raise InputError(
            f"{parameter.opts[0]} {text}: must be a percentage from 0 to 100, such as 95%"
        )
    return value


MIN_COVERAGE = value(
    "--min-coverage PERCENT",
    "Exit code 3 below this share of operator calls with known FLOP.",
    title=REPORT,
    callback=fraction,
)


def check_coverage(analysis: Analysis, least: float | None, of: str = "") -> None:
    """Raise an error if the share of operator calls with a formula is below `least`."""
    calls = analysis.coverage.calls
    if least is not None and calls < least:
        raise IncompleteError(
            f"coverage{of}: {calls:.1%} of operator calls, below --min-coverage {least:.1%};"
            " add formulas with @roofline.formula"
        )


@command(
    "analyze",
    model_argument(),
    run_pack(
        *PASS,
        "hardware",
        "threads",
        "cold",
        "no_cache",
        several=("hardware",),
    ),
    VIEW,
    LAYERS,
    MIN_COVERAGE,
    output_pack(f"{_FORMATS} .tfevents"),
)
def analyze(
    model: str,
    run: dict[str, Any],
    view: View,
    layers: Layers,
    min_coverage: float | None,
    output: Output,
) -> None:
    """Compute minimum time, limiters and memory of MODEL on a machine.

    \b
    MODEL is one of
      resnet50              model of torchvision, timm or transformers
      timm:NAME             model of timm; torchvision:NAME of torchvision
      hf:TYPE, hf:CLASS     transformers model (hf:bert, hf:BertForMaskedLM)
      package.module:make   your model; also file.py:Model, model.onnx, .pt2
      'conv2d(64,64,3)+relu()@56x56'   design (docs/how-to/designs.md)

    Nothing is downloaded and no weights are allocated. The machine is this one, measured on first
    use, or --hardware; several --hardware are compared.
    """
    from roofline.design.comparison.result import Comparison

    machines = run["hardware"]
    several = not isinstance(machines, str | None)
    if several:
        output.check(Comparison)
    else:
        check_analysis_files(output, is_measured=False)
    picture = layers.picture(output)
    if picture and several:
        raise InputError(f"--layers: takes one machine, got {len(machines)} --hardware; give one")
    from roofline.pipeline.analyses import analyze, compare_machines

    with progress_bar() as progress:
        if several:
            result = compare_machines(model, progress=progress, **run)
        else:
            result = analyze(model, progress=progress, **run)
    output.present(result, view, **picture)
    # Coverage is the model's, whatever the machine.
    first = result.analyses[0] if isinstance(result, Comparison) else result
    check_coverage(first, min_coverage)


@command(
    "profile",
    model_argument(),
    run_pack(*PASS, "threads", "hardware"),
    flag("--compiled", "Also time torch.compile.", title=MEASURING),
    value(
        "--passes N",
        "Number of passes.  [default: a few seconds of passes]",
        title=MEASURING,
        type=click.IntRange(min=1),
    ),
    QUICK,
    option(
        "--no-learn",
        "learn",
        is_flag=True,
        flag_value=False,
        default=True,
        title=MEASURING,
        help="Do not add the measurements to the calibration data.",
    ),
    VIEW,
    LAYERS,
    output_pack(f"{_FORMATS} .trace.json .tfevents", measures=True),
)
def profile(
    model: str, run: dict[str, Any], view: View, layers: Layers, output: Output, **options: Any
) -> None:
    """Run MODEL here and time every operator in place.

    The model runs with random weights. Passes timed as a whole alternate with passes in which every
    operator is timed; disturbed passes are discarded. Times are medians with their interquartile
    range (IQR). MODEL as for analyze.

    -o run.trace.json writes the timeline of one pass for Perfetto (ui.perfetto.dev).
    """
    check_analysis_files(output)
    picture = layers.picture(output)
    from roofline.pipeline.profiles import profile

    with progress_bar("Measuring") as progress:
        result = profile(
            model, force=output.force, progress=progress, say=print_stderr, **run, **options
        )
    output.present(result, view, **picture)


@command(
    "predict",
    model_argument(),
    run_pack(*PASS, "hardware", "threads", "no_cache"),
    value(
        "--operators",
        "Source of operator times: calibration, or each operator timed here.",
        title=MEASURING,
        type=click.Choice(["learned", "measured"]),
        default="learned",
    ),
    VIEW,
    output_pack(f"{_FORMATS} .tfevents", measures=True),
)
def predict(model: str, run: dict[str, Any], operators: Any, view: View, output: Output) -> None:
    """Predict the time of MODEL, with an 80 % prediction interval, without running it.

    Predictions need calibration data of the machine (`roofline calibrate`); without it, the report
    has minimum times only, and the exit code is 3. MODEL as for analyze.
    """
    check_analysis_files(output, is_measured=False)
    from roofline.pipeline.analyses import add_findings
    from roofline.pipeline.predictions import predict

    with progress_bar("Predicting") as progress:
        result = predict(
            model,
            operators=operators,
            force=output.force,
            progress=progress,
            say=print_stderr,
            **run,
        )
    # `predict` leaves them out: a loop of predictions does not need them.
    result = add_findings(result, run["hardware"], no_cache=run["no_cache"])
    output.present(result, view)
    if result.not_predicted:
        # The report begins with the reason.
        reason = f": {result.not_predicted}" if output.format else ""
        raise IncompleteError(f"no predicted time{reason}")


@command(
    "advise",
    model_argument(complete=candidates.models_and_saved),
    run_pack(*PASS, "hardware", "threads", "no_cache"),
    flag("--measure", "Time the changes here, interleaved with the original.", title=MEASURING),
    QUICK,
    top_option("findings"),
    output_pack(".json .csv .md .html", measures=True),
)
@click.pass_context
def advise(
    context: click.Context,
    model: str,
    run: dict[str, Any],
    measure: bool,
    quick: bool,
    top: int | None,
    output: Output,
) -> None:
    """Show the longest layers of MODEL, their limiters, and changes that save time.

    Each finding has its layers, evidence, and a saving with its kind of time; --measure times it
    here. MODEL as for analyze, or a saved analysis (.json), whose findings are shown.
    """
    from roofline.design.advice.result import Advice, read_advice
    from roofline.traces.reading import is_trace

    view = View(top=top)
    if is_trace(model):
        _advise_on_trace(context, model, run["hardware"], view, output)
        return
    output.check(Advice)
    if str(model).endswith(".json"):
        if measure:
            raise InputError(f"--measure: {model} is a saved analysis; give the model")
        for name, written in given_options(context):
            if name not in ("model", "top", "outputs", "force", "format"):
                raise InputError(f"{written}: has no effect on {model}, a saved analysis")
        advice = read_advice(model)
        if not advice.findings:
            print_stderr(f"{model} contains no findings; `roofline advise` may not have run")
    else:
        from roofline.pipeline.advising import advise

        with progress_bar("Advising") as progress:
            advice = advise(
                model,
                measure=measure,
                quick=quick,
                top=view.rows(),
                force=output.force,
                progress=progress,
                say=print_stderr,
                **run,
            )
    output.present(advice, view)


def _advise_on_trace(
    context: click.Context, file: str, hardware: Any, view: View, output: Output
) -> None:
    from roofline.traces.advice import TraceAdvice

    for name, written in given_options(context):
        if name not in ("model", "hardware", "top", "outputs", "force", "format", "verbose"):
            raise InputError(f"{written} has no effect on {file}, which is a trace")
    output.check(TraceAdvice)
    from roofline.pipeline.traces import read_trace

    with progress_bar("Reading") as progress:
        found = read_trace(file, hardware=hardware, progress=progress)
    output.present(TraceAdvice.of(found), view)


@command(
    "trace",
    click.Argument(["file"], type=FileName()),
    value(
        "--hardware NAME|FILE",
        "Machine of the trace.  [default: by the device in the trace]",
        title=MACHINE,
        shell_complete=candidates.machines,
    ),
    value("--threads N", "Compute threads, of traces of a CPU.", title=MACHINE, type=int),
    value(
        "--step N|all",
        "Profiler step.  [default: all, medians of equal ones]",
        title=TRACE,
    ),
    value(
        "--capture FILE",
        "Trace of the capture of CUDA or HIP graphs.",
        title=TRACE,
        type=FileName(),
    ),
    value(
        "--execution FILE",
        "Execution trace of the same run, for missing shapes.",
        title=TRACE,
        type=FileName(),
    ),
    flag("--learn", "Improve predictions for the GPU of the trace.", title=TRACE),
    VIEW_WITH_KERNELS,
    output_pack(_FORMATS),
)
def trace(
    file: Path,
    hardware: str | None,
    threads: int | None,
    step: str | None,
    capture: Path | None,
    execution: Path | None,
    learn: bool,
    view: View,
    output: Output,
) -> None:
    """Read a torch.profiler trace: measured operators under a machine's ceilings.

    FILE is a trace of Kineto (.json, .json.gz) or an execution trace. Operators need shapes:
    torch.profiler.profile(record_shapes=True). --capture names the trace of the capture of the
    graphs that are launched in FILE.
    """
    from roofline.traces.result import TraceAnalysis

    output.check(TraceAnalysis)
    _check_view(view, TraceAnalysis.kind, file)
    from roofline.pipeline.traces import read_trace

    with progress_bar("Reading") as progress:
        result = read_trace(
            file,
            hardware=hardware,
            step=step,
            capture=capture,
            execution=execution,
            threads=threads,
            progress=progress,
        )
    output.present(result, view)
    if learn:
        from roofline.pipeline.machine_times import learn_times

        print_stderr(f"roofline: {learn_times(result, hardware).summary}")


@command(
    "show",
    click.Argument(["file"], type=FileName()),
    VIEW_WITH_KERNELS,
    LAYERS,
    output_pack(f"{_FORMATS} .trace.json .tfevents"),
)
def show(file: Path, view: View, layers: Layers, output: Output) -> None:
    """Show the result saved in FILE (.json) of any command; needs no torch."""
    from roofline.analysis import Analysis
    from roofline.analysis.words import kind_of_time
    from roofline.core.files import check_named_once, read_json
    from roofline.result import result_from_data

    check_named_once(output.files)
    picture = layers.picture(output)
    if file.suffix == ".toml" and file.is_file():
        raise InputError(f"{file}: is a machine profile; use roofline hardware show {file}")
    data = read_json(file, fix="make it again with `roofline analyze MODEL -o FILE.json`")
    result = result_from_data(data, file=str(file))
    _check_view(view, result.kind, file)
    if isinstance(result, Analysis):
        check_analysis_files(output, is_measured=kind_of_time(result) == "measured")
    else:
        output.check(type(result))
        if picture:
            raise InputError(
                f"--layers: {file} is of kind '{result.kind}'; --layers takes analyses"
            )
        # Comparisons have modules and types too.
        has_rows = "comparison" in result.kind or result.kind == "trace"
        if not has_rows and (view.by != "operator" or view.depth is not None or view.fused):
            raise InputError(
                f"{file}: is of kind '{result.kind}'; --by, --depth and --fused take analyses"
            )
    output.present(result, view, **picture)


def _check_view(view: View, kind: str, file: Path) -> None:
    """Refuse kernels of results that have none, and fused ones of traces."""
    if view.by == "kernel" and kind != "trace":
        raise InputError(f"--by kernel: {file} is of kind '{kind}'; --by kernel takes traces")
    if view.fused and kind == "trace":
        raise InputError(f"--fused: {file} is a trace; --fused takes analyses")
