"""Whether a size in a .pt2 file is arithmetic on other sizes: torch evaluates it as Python."""

from __future__ import annotations

import ast

_PARTS = (
    *(ast.Expression, ast.Name, ast.Load, ast.Call, ast.Constant, ast.UnaryOp, ast.BinOp),
    *(ast.Tuple, ast.Compare, ast.BoolOp, ast.unaryop, ast.cmpop, ast.boolop),
    *(ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod, ast.Pow),
)
_FUNCTIONS = frozenset(
    {
        *("FloorDiv", "ModularIndexing", "Where", "PythonMod", "Mod", "CleanDiv", "CeilDiv"),
        *("CeilToInt", "FloorToInt", "TruncToInt", "RoundToInt", "TruncToFloat", "RoundDecimal"),
        *("ToFloat", "FloatTrueDiv", "IntTrueDiv", "Identity", "LShift", "RShift", "PowByNatural"),
        *("FloatPow", "IsNonOverlappingAndDenseIndicator", "Max", "Min", "Abs", "sqrt"),
        *("floor", "ceiling", "Piecewise", "ExprCondPair", "And", "Or", "Not"),
        *("Eq", "Ne", "Lt", "Le", "Gt", "Ge", "Integer", "Float", "Rational"),
    }
)
"""What torch writes: its own functions and sympy's, none of which looks anything up by a text."""

_POWERS = ("LShift", "RShift", "PowByNatural", "FloatPow")
_LONGEST = 2000
_LARGEST_EXPONENT = 64
"""What powers of powers may come to: numbers stay small enough to compute."""

_LARGEST_NUMBER = 2**64


def is_arithmetic(text: str) -> bool:
    """Whether evaluating a text does nothing but arithmetic, and soon ends."""
    try:
        if len(text) > _LONGEST:
            return False
        tree = ast.parse(text, mode="eval")
        is_allowed = all(_is_allowed(part) for part in ast.walk(tree))
        return is_allowed and _power(tree) <= _LARGEST_EXPONENT
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False


def _is_allowed(part: ast.AST) -> bool:
    if isinstance(part, ast.Name):
        return "__" not in part.id
    if isinstance(part, ast.Constant):
        value = part.value
        return isinstance(value, (int, float)) and abs(value) <= _LARGEST_NUMBER
    if isinstance(part, ast.Call):
        is_known = isinstance(part.func, ast.Name) and part.func.id in _FUNCTIONS
        return is_known and not part.keywords
    return isinstance(part, _PARTS)


def _power(part: ast.AST) -> int:
    """The largest product of exponents that stand within each other."""
    inner = max((_power(each) for each in ast.iter_child_nodes(part)), default=1)
    return max(1, _exponent(part)) * inner


def _exponent(part: ast.AST) -> int:
    """The exponent of a power, 1 of anything else; too large a number where it is computed."""
    if isinstance(part, ast.BinOp) and isinstance(part.op, ast.Pow):
        return _whole(part.right)
    if not isinstance(part, ast.Call) or not isinstance(part.func, ast.Name):
        return 1
    if part.func.id not in _POWERS:
        return 1
    return _whole(part.args[1]) if len(part.args) == 2 else _LARGEST_EXPONENT + 1


def _whole(exponent: ast.expr) -> int:
    while isinstance(exponent, ast.UnaryOp):
        exponent = exponent.operand
    # A root, as sympy writes it: x**(1/2).
    if isinstance(exponent, ast.BinOp) and isinstance(exponent.op, ast.Div):
        return _whole(exponent.left)
    if isinstance(exponent, ast.Constant) and isinstance(exponent.value, (int, float)):
        return int(exponent.value)
    # Two to the power of a size is what a model may ask for; a number to that of a number is not.
    return 1 if isinstance(exponent, ast.Name) else _LARGEST_EXPONENT + 1
