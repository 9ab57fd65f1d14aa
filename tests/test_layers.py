"""Imports run one way, and heavy libraries stay where they belong."""

from __future__ import annotations

import ast
import functools
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "roofline"

# Each room, and the rooms it may import besides itself.
ALLOWED = {
    "errors": set[str](),
    "core": {"errors"},
    "result": {"errors", "core"},
    "run": {"errors", "core"},
    "render": {"errors", "core"},
    "plots": {"errors", "core"},
}
CORE = {"errors", "core", "result", "run", "plots"}
ALLOWED |= {
    "machine": CORE,
    "workload": CORE,
    "placement": {*CORE, "machine", "workload"},
    "minimum": {*CORE, "machine", "workload", "placement"},
    "latency": {*CORE, "machine", "workload", "placement"},
    "analysis": {*CORE, "machine", "workload", "placement", "minimum", "latency"},
}
ALLOWED["design"] = {*ALLOWED["analysis"], "analysis"}
ALLOWED["counters"] = {*ALLOWED["analysis"], "analysis"}
ALLOWED["substitution"] = {*ALLOWED["design"], "design"}
ALLOWED["quantization"] = {*ALLOWED["design"], "design"}
ALLOWED["traces"] = {*ALLOWED["design"], "design"}
ALLOWED["scaling"] = {*ALLOWED["analysis"], "analysis"}
ALLOWED["llm"] = {*ALLOWED["scaling"], "scaling"}
ALLOWED["pipeline"] = {
    *ALLOWED["design"],
    *("design", "counters", "substitution", "quantization", "llm", "scaling", "traces", "render"),
}
ALLOWED["cli"] = {*ALLOWED["pipeline"], "pipeline"}
ALLOWED["testing"] = {*ALLOWED["pipeline"], "pipeline"}
ALLOWED["__main__"] = {"cli"}
ALLOWED["__init__"] = {*ALLOWED["cli"], "cli"}

# Methods of results may import what lays them out inside the function.
INSIDE_FUNCTIONS = {
    "result": {"render", "plots"},
    "run": {"workload"},
    "analysis": {"render"},
    "design": {"render"},
    "llm": {"render"},
}

QUANTIZATION_WITH_TORCH = (
    *("clipping", "folding", "native_variants", "integer_models", "packed_files"),
    *("packed_models", "quantized_modules", "quantizers", "quantizing", "tracing"),
)

# Where a library may be imported at all, as path prefixes.
HOME = {
    "torch": (
        *("machine/library/", "pipeline/", "workload/capture/", "workload/models/"),
        *("workload/inputs.py", "workload/torch_dtypes.py"),
        *(
            "machine/gpu/torch_device.py",
            "counters/peers.py",
            "counters/subject.py",
            "latency/measuring/",
        ),
        *("substitution/graphs/", "substitution/rules/", "substitution/proof.py"),
        *(f"quantization/{name}.py" for name in QUANTIZATION_WITH_TORCH),
        "machine/links.py",
    ),
    # Imported by name, where a model of theirs is asked for.
    "torchvision": (),
    "timm": (),
    "transformers": (),
    # And TensorBoard, where an event file is.
    "tensorboard": (),
    "pandas": ("core/rows.py",),
    "matplotlib": (
        "latency/validation_drawing.py",
        *("design/comparison/model_drawing.py", "design/comparison/machine_drawing.py"),
        "design/comparison/sweep_drawing.py",
        *("plots/", "analysis/drawing.py", "llm/drawing.py", "quantization/drawing.py"),
        *("scaling/drawing.py", "substitution/drawing.py"),
        *("analysis/layers_drawing.py", "machine/drawing.py"),
    ),
    "textalloc": ("plots/",),
    "threadpoolctl": ("pipeline/sweeps/",),
    "jinja2": ("render/pages.py", "render/interactive.py"),
    "rich": ("render/console.py", "cli/"),
    "click": ("cli/",),
    "pytest": ("testing.py",),
    "llvmlite": ("machine/kernels/",),
}


@functools.cache
def modules() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def room(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


@functools.cache
def imports(path: Path) -> tuple[tuple[str, bool, bool], ...]:
    """Names imported, and whether that is inside a function or for type checkers only."""

    def walk(node: ast.AST, inside: bool, checking: bool) -> Iterator[tuple[str, bool, bool]]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.Import):
                yield from ((alias.name, inside, checking) for alias in child.names)
            elif isinstance(child, ast.ImportFrom):
                assert child.level == 0, f"{path}: relative import"
                yield child.module or "", inside, checking
                yield from (
                    (f"{child.module}.{alias.name}", inside, checking) for alias in child.names
                )
            else:
                is_function = isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef))
                is_checking = isinstance(child, ast.If) and "TYPE_CHECKING" in ast.dump(child.test)
                yield from walk(child, inside or is_function, checking or is_checking)

    return tuple(walk(ast.parse(path.read_text(encoding="utf-8")), False, False))


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_run_one_way(path: Path) -> None:
    here = room(path)
    for name, inside, checking in imports(path):
        parts = name.split(".")
        if parts[0] != "roofline" or len(parts) < 2 or checking:
            continue
        other = parts[1]
        if other not in ALLOWED or other in (here, "__init__"):
            continue
        allowed = ALLOWED[here] | (INSIDE_FUNCTIONS.get(here, set()) if inside else set())
        assert other in allowed, f"{here} must not import {other} ({path.name}: {name})"


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_heavy_libraries_stay_at_home(path: Path) -> None:
    where = path.relative_to(PACKAGE).as_posix()
    for name, _inside, checking in imports(path):
        homes = HOME.get(name.split(".")[0])
        if homes is not None and not checking:
            assert where.startswith(homes), f"{where} must not import {name}"


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_no_drawer_for_everything_and_no_name_of_the_standard_library(path: Path) -> None:
    assert path.stem not in ("utils", "helpers", "common", "misc")
    assert path.stem.startswith("__") or path.stem not in sys.stdlib_module_names


def loaded_after(code: str) -> set[str]:
    """The heavy modules that are loaded once `code` has run in a new interpreter."""
    libraries = "torch pandas matplotlib torchvision llvmlite numpy jinja2 networkx"
    heavy = tuple(libraries.split())
    probe = f"{code}\nimport sys; print([m for m in {heavy!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    return set(ast.literal_eval(done.stdout.splitlines()[-1]))


@pytest.mark.parametrize(
    "code",
    [
        "import roofline",
        "import roofline.quantization, roofline.quantization.policy",
        "from roofline.cli.main import run; run(['--help'])",
        "from roofline.cli.main import _COMMANDS, run\n"
        "for each in _COMMANDS: assert run([each, '--help']) == 0",
        "from roofline.cli.main import run; run(['--version'])",
        "from roofline.cli.main import run; run(['hardware', 'list'])",
        "from roofline.cli.main import run; run(['hardware', 'show', '10980xe'])",
        "from roofline.cli.main import run; run(['llm', 'llama-3.1-8b', '--hardware', 'h100'])",
        "import roofline.analysis, roofline.placement, roofline.workload.formulas",
    ],
)
def test_start_up_loads_nothing_heavy(code: str) -> None:
    assert loaded_after(code) == set()


def test_every_public_name_exists_and_is_listed() -> None:
    import roofline

    for name in roofline.__all__:
        assert getattr(roofline, name) is not None
    assert set(roofline.__all__) <= set(dir(roofline))


def test_every_name_of_quantization_exists_and_is_listed() -> None:
    from roofline import quantization

    for name in quantization.__all__:
        assert getattr(quantization, name).__name__ == name
    assert set(quantization.__all__) <= set(dir(quantization))
