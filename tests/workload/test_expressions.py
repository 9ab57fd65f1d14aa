"""Designs written as text: what is read, what is printed, and what is refused where."""

from __future__ import annotations

import ast
import keyword
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roofline.core.source_errors import PlacedError, caret_lines, columns_of
from roofline.errors import InputError
from roofline.workload.models.expressions.reading import (
    bind_variables,
    is_expression,
    parse_design,
    variables_in,
)
from roofline.workload.models.expressions.syntax import (
    WORDS,
    Argument,
    Design,
    Group,
    Layer,
    Operation,
    Repeat,
    Shape,
    Value,
    Variable,
)

# -- what is a design ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        *("conv2d(64,64,3)", "relu@1x8", "relu+gelu", "3*relu", "{depth}*relu", "conv2d(64,64"),
        *("file.py:Block(64)", "file.py:Block@1x3x8x8", "resnet18@1x3x8x8", ")"),
        # No path is as long, or has a NUL in it.
        *("(" + "a" * 5000 + ".py:Net", "(\0.py:Net"),
    ],
)
def test_designs(text: str) -> None:
    assert is_expression(text)


@pytest.mark.parametrize(
    "text",
    ["resnet50", "timm:resnet50", "hf:bert", "file.py:Block", "a.b:c", "saved.json", "", "../x.py"],
)
def test_other_names(text: str) -> None:
    assert not is_expression(text)
    assert variables_in(text) == ()
    assert bind_variables(text, {"x": 1}) == text


@pytest.mark.parametrize("name", ["a+b.py", "a(1).py", "a@2.py", "a{b}.py", "a*b.py"])
def test_a_file_that_there_is_stays_a_file(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert is_expression(f"{name}:Net")
    (tmp_path / name).touch()
    (tmp_path / "a+b.json").touch()
    assert not is_expression(f"{name}:Net")
    assert not is_expression(str(tmp_path / name) + ":Net")
    assert not is_expression(name)
    assert not is_expression("a+b.json")
    assert is_expression(f"'{name}':Net@1x3")


# -- what is read ----------------------------------------------------------------------------------


def layer(name: str, *values: Value, home: str = "", **named: Value) -> Layer:
    given = [("", each) for each in values] + list(named.items())
    arguments = tuple(Argument(name=name, value=value, at=0) for name, value in given)
    return Layer(name=name, home=home, arguments=arguments, at=0)


def bare(name: str, home: str = "") -> Layer:
    return Layer(name=name, home=home, arguments=None, at=0)


def shape(*sizes: int, dtype: str = "") -> Shape:
    return Shape(sizes=sizes, dtype=dtype, at=0)


def repeated(count: Value, part: Layer) -> Repeat:
    return Repeat(count=count, part=part, at=0)


def operation(left: Value, operator: str, right: Value) -> Operation:
    return Operation(operator=operator, left=left, right=right, at=0)


def design(*parts: Layer | Group | Repeat, shapes: tuple[Shape, ...] = ()) -> Design:
    return Design(parts=parts, shapes=shapes, text="")


N = Variable(name="n", at=0)


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        ("relu()", design(layer("relu"))),
        ("relu", design(bare("relu"))),
        (
            "conv2d(64,64,3,padding=1)@56x56",
            design(layer("conv2d", 64, 64, 3, padding=1), shapes=(shape(56, 56),)),
        ),
        ("a(padding=same)", design(layer("a", padding="same"))),
        ("a(padding='same')", design(layer("a", padding="same"))),
        ('a("it\'s", "a\\"b")', design(layer("a", "it's", 'a"b'))),
        ("a(true, False, none)", design(layer("a", True, False, None))),
        ("a((3,1))", design(layer("a", (3, 1)))),
        ("a((3,))", design(layer("a", (3,)))),
        ("a([3])", design(layer("a", (3,)))),
        ("a((3))", design(layer("a", 3))),
        ("a(())", design(layer("a", ()))),
        ("a(-1, 1e-5, .5, 2.)", design(layer("a", -1, 1e-5, 0.5, 2.0))),
        ("a(1,)", design(layer("a", 1))),
        ("a(n*4+1)", design(layer("a", operation(operation(N, "*", 4), "+", 1)))),
        ("a+b.py:C", design(bare("a"), bare("C", "b.py"))),
        ("x/y-1.py:C.d", design(bare("C.d", "x/y-1.py"))),
        ("'a+b (1).py':C(1)", design(layer("C", 1, home="a+b (1).py"))),
        ("hf:xlm-roberta", design(bare("xlm-roberta", "hf"))),
        ("3*a()", design(repeated(3, layer("a")))),
        ("{n}*a()", design(repeated(N, layer("a")))),
        ("n*a()", design(repeated(N, layer("a")))),
        ("(a()+b())", design(Group(parts=(layer("a"), layer("b")), at=0))),
        ("residual(a())", design(Group(parts=(layer("a"),), is_residual=True, at=0))),
        (
            "a()@1x8x64, 1x8:int64",
            design(layer("a"), shapes=(shape(1, 8, 64), shape(1, 8, dtype="int64"))),
        ),
    ],
)
def test_trees(text: str, tree: Design) -> None:
    assert parse_design(text) == tree
    assert parse_design(str(tree)) == tree
    spaced = text.replace(",", " , ").replace("(", " ( ").replace("=", " = ")
    if "'" not in text and '"' not in text:
        assert parse_design(f"\t{spaced}\n") == tree


@pytest.mark.parametrize(
    ("text", "written"),
    [
        (
            " conv2d( 64 , 64,3 , padding = 'same' ) @ 56 x 56 ",
            "conv2d(64,64,3,padding=same)@56x56",
        ),
        ("a([1, 2])", "a((1,2))"),
        ("a(True, None)", "a(true,none)"),
        ("a( {n*4} )@{ n }x{2}", "a(n*4)@{n}x2"),
        ("a(n-(m-2))", "a(n-(m-2))"),
        ("a('two words')", "a('two words')"),
    ],
)
def test_normal_form(text: str, written: str) -> None:
    assert str(parse_design(text)) == written


def test_places_are_kept() -> None:
    found = parse_design(" relu() + conv2d(64, out , k=(3,1)) @ 1x{n}x5")
    relu, conv = found.parts
    assert isinstance(conv, Layer)
    assert conv.arguments is not None
    assert (relu.at, conv.at) == (1, 10)
    assert [each.at for each in conv.arguments] == [17, 21, 27]
    assert [each.at for each in found.variables] == [21, 41]
    assert [each.at for each in found.shapes] == [38]


# -- printing, then reading, gives the same --------------------------------------------------------

NAMES = st.from_regex(r"[a-z][a-z0-9_]{0,5}", fullmatch=True).filter(
    lambda name: name not in ("true", "false", "none", "residual") and not keyword.iskeyword(name)
)
LITERALS = st.one_of(
    st.integers(-(10**17), 10**17),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from([True, False, None]),
    st.sampled_from(sorted(WORDS)),
    st.text(max_size=6),
)
# What has a variable in it: all other arithmetic is done when it is read.
ARITHMETIC: st.SearchStrategy[Value] = st.recursive(
    NAMES.map(lambda name: Variable(name=name, at=0)),
    lambda inner: st.builds(
        Operation,
        operator=st.sampled_from(["+", "-", "*", "/", "//", "%"]),
        left=inner,
        right=st.one_of(inner, st.integers(-99, 99)),
        at=st.just(0),
    ),
    max_leaves=5,
)
VALUES = st.recursive(
    st.one_of(LITERALS, ARITHMETIC),
    lambda inner: st.lists(inner, max_size=3).map(tuple),
    max_leaves=4,
)


@st.composite
def layers(draw: st.DrawFn) -> Layer:
    given = [Argument(name="", value=each, at=0) for each in draw(st.lists(VALUES, max_size=3))]
    named = draw(st.lists(NAMES, max_size=2, unique=True))
    given += [Argument(name=name, value=draw(VALUES), at=0) for name in named]
    home = draw(st.one_of(st.just(""), st.just("my dir/a'b+c.py"), st.text(min_size=1, max_size=5)))
    arguments = tuple(given) if draw(st.booleans()) else None
    return Layer(name=draw(NAMES), home=home, arguments=arguments, at=0)


@st.composite
def groups(draw: st.DrawFn, inner: st.SearchStrategy[Layer | Group | Repeat]) -> Group:
    parts = tuple(draw(st.lists(inner, min_size=1, max_size=3)))
    return Group(parts=parts, is_residual=draw(st.booleans()), at=0)


PARTS = st.recursive(
    layers(),
    lambda inner: st.one_of(
        groups(inner),
        st.builds(
            Repeat,
            count=st.one_of(st.integers(1, 99), ARITHMETIC),
            part=st.one_of(layers(), groups(inner)),
            at=st.just(0),
        ),
    ),
    max_leaves=4,
)
SIZES = st.one_of(st.integers(1, 10**6), ARITHMETIC)
SHAPES = st.builds(
    Shape,
    sizes=st.lists(SIZES, min_size=1, max_size=4).map(tuple),
    dtype=st.sampled_from(["", "int64", "bfloat16"]),
    at=st.just(0),
)


@given(
    st.builds(
        Design,
        parts=st.lists(PARTS, min_size=1, max_size=3).map(tuple),
        shapes=st.lists(SHAPES, max_size=2).map(tuple),
        text=st.just(""),
    )
)
def test_printing_and_reading_gives_the_same(tree: Design) -> None:
    assert parse_design(str(tree)) == tree
    assert str(parse_design(str(tree))) == str(tree)


@given(st.text(alphabet="ab1x(){}[]@+*-/%=,.:'\" \\\n", max_size=40))
def test_any_text_is_read_or_refused_at_a_place(text: str) -> None:
    try:
        found = parse_design(text)
    except PlacedError as error:
        assert 0 <= error.at <= len(text)
        assert "\n" not in error.message
    else:
        assert parse_design(str(found)) == found


# -- variables -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("conv2d(channels,channels*4,3)@{size}x{size}", ("channels", "size")),
        ("conv2d(64,64,3,padding=same,padding_mode=reflect)@56x56", ()),
        ("upsample(mode=nearest-exact,scale_factor=s)", ("s",)),
        ("depth*(linear(n,n)+relu())@{batch}x{n//2}", ("depth", "n", "batch")),
        ("file.py:Block(c, kind=fast)@1x{c}", ("c", "fast")),
        ("gelu(approximate=tanh)", ()),
        ("a(x=(k,1))", ("k",)),
        ("a({tanh})", ("tanh",)),
    ],
)
def test_variables(text: str, names: tuple[str, ...]) -> None:
    assert variables_in(text) == names


@pytest.mark.parametrize(
    ("text", "values", "written"),
    [
        ("a(c,c*4,3)@{s}x{s}", {"c": 16, "s": 56}, "a(16,64,3)@56x56"),
        ("a(c,c*4,3)@{s}x{s}", {"c": 16}, "a(16,64,3)@{s}x{s}"),
        ("a(c/4)@{s//2}", {"c": 64, "s": 57}, "a(16)@28"),
        ("a(c/4)", {"c": 63}, "a(15.75)"),
        ("a(c%4+1-2)", {"c": 63}, "a(2)"),
        ("a(-c)", {"c": 3}, "a(-3)"),
        ("n*a()", {"n": 3}, "3*a()"),
        ("n*a()", {}, "{n}*a()"),
        ("{n//2}*(a()+b())", {"n": 5}, "2*(a()+b())"),
        ("a(padding_mode=m)", {"m": "reflect"}, "a(padding_mode=reflect)"),
        ("a(kind=k)", {"k": "two words"}, "a(kind='two words')"),
        ("a(p)", {"p": 0.5}, "a(0.5)"),
        ("a()@{s}", {"s": 28.0}, "a()@28"),
        ("a(1+2*3)", {}, "a(7)"),
        ("a((1+2)*3)", {}, "a(9)"),
        ("a(7-2-1)", {}, "a(4)"),
        ("a((c,1),[c])", {"c": 2}, "a((2,1),(2,))"),
        ("a(c)", {"other": 3}, "a(c)"),
        ("residual(3*a(c))", {"c": 2}, "residual(3*a(2))"),
    ],
)
def test_bound(text: str, values: dict[str, int | float | str], written: str) -> None:
    assert bind_variables(text, values) == written
    assert bind_variables(written, {}) == written


@pytest.mark.parametrize(
    ("text", "values", "said", "at"),
    [
        (
            "a()@1x{s/2}",
            {"s": 7},
            "a size must be a whole number from 1, s/2 is 3.5; use //",
            7,
        ),
        ("a()@1x{s-7}", {"s": 7}, "a size must be a whole number from 1, s-7 is 0", 7),
        ("a()@{s}", {"s": "big"}, "a size must be a whole number from 1, s is 'big'", 5),
        ("0*a()", {}, "a count must be a whole number from 1, got 0", 0),
        ("n*a()", {"n": 0}, "a count must be a whole number from 1, n is 0", 0),
        ("a(c//0)", {"c": 1}, "division by 0: 1//0", 2),
        ("a(1%(2-2))", {}, "division by 0: 1%0", 2),
        ("a(c*c)", {"c": 10**12}, "1000000000000*1000000000000 is too large", 2),
        ("a(c+1)", {"c": "x"}, "'+' needs numbers or variables: c is 'x'", 2),
        ("a(c)", {"c": float("nan")}, "'c' must be a number or a word, got nan", 2),
        ("a(c)", {"c": 1e30}, "c is too large", 2),
    ],
)
def test_values_that_do_not_fit(
    text: str, values: dict[str, int | float | str], said: str, at: int
) -> None:
    with pytest.raises(PlacedError) as caught:
        bind_variables(text, values)
    assert said in caught.value.message
    assert caught.value.at == at


# -- what is refused, and where --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "text", "caret"),
    [
        ("unclosed bracket: ')' is missing", "conv2d(64,64,3", "      ^"),
        ("unclosed bracket: ')' is missing", "relu()+(relu()", "       ^"),
        ("unclosed bracket: '}' is missing", "relu()@{n", "       ^"),
        ("unmatched ')'", "relu())", "      ^"),
        ("invalid syntax; arguments look like 64", "a(1,,2)", "    ^"),
        ("Perhaps you forgot a comma?", "a(1 2)", "  ^"),
        ("expected a layer here, got the end", "relu()+", "       ^"),
        ("expected a layer here, got '@'", "@1x2", "^"),
        ("expected a layer here, got '@'", "relu()+@1x2", "       ^"),
        ("expected a layer here, got '+'", "relu()++relu()", "       ^"),
        ("expected '+' and a layer, or '@' and a shape, got 'r'", "relu() relu()", "       ^"),
        ("expected a size here, got the end", "relu()@", "       ^"),
        ("expected a size here, got the end", "relu()@1x", "         ^"),
        ("the end of the shape here, got 'y': 1x64", "relu()@56y56", "         ^"),
        ("a variable in a shape needs braces: {size}", "relu()@sizexsize", "       ^"),
        ("a size must be a whole number from 1, got 0", "relu()@1x0x3", "         ^"),
        ("expected the end of the shape here, got '.'", "relu()@1.5", "        ^"),
        ("the shape comes last", "relu()@1x2+relu()", "          ^"),
        ("the shape comes at the end of the design", "(relu()@1x2)", "       ^"),
        ("more than one '@'", "relu()@1x2@1x2", "          ^"),
        ("unknown dtype 'int65'", "relu()@1x2:int65", "           ^"),
        ("invalid syntax", "a(1.2.3)", "  ^"),
        ("invalid decimal literal", "a(3x3)", "  ^"),
        ("number too large", "a(1e999)", "  ^"),
        ("number too large", f"a({10**18})", "  ^"),
        ("duplicate argument 'p'", "a(p=1,p=2)", "      ^"),
        ("positional argument follows keyword argument", "a(p=1,2)", "       ^"),
        ("unclosed quotation mark", "a('same)", "  ^"),
        ("invalid argument 'b(1)'", "a(b(1))", "  ^"),
        ("'+' needs numbers or variables", "a(1+'x')", "    ^"),
        ("'-' needs numbers or variables", "a(-true)", "   ^"),
        ("got the number 5: 3*relu() repeats a layer", "relu*5", "     ^"),
        ("got the number 2.5", "2.5*relu()", "^"),
        ("a count must be a whole number from 1, got true", "true*relu()", "^"),
        ("expected '*' here", "{n}relu()", "   ^"),
        ("expected ':' and a name after a file", "'my file.py'(1)", "            ^"),
        ("the name of a class or function after 'a.py:'", "a.py:(1)", "     ^"),
    ],
)
def test_what_is_refused(said: str, text: str, caret: str) -> None:
    with pytest.raises(PlacedError) as caught:
        parse_design(text)
    assert said in caught.value.message
    assert str(caught.value).splitlines()[1:] == [f"  {text}", f"  {caret}"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("(" * 10_000_000, "design too long: 10,000,000 characters"),
        ("(" * 5000, "brackets nested deeper than 40"),
        ("a(" + "(" * 5000, "deeper than 40"),
        ("a(" + "-" * 5000 + "1)", "expression too large"),
        ("a(" + "-" * 300 + "1)", "too many operations"),
        ("a(" + "1+" * 4000 + "1)", "too (large|many operations)"),
        ("a(" + "9" * 9000 + ")", "arguments look like|too large"),
        ("9" * 9000 + "*relu()", "arguments look like|too large"),
        ("relu()@" + "9" * 9000, "arguments look like|too large"),
    ],
)
def test_texts_that_are_too_much(text: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        parse_design(text)


# -- the caret -------------------------------------------------------------------------------------


@given(st.text(max_size=200), st.integers(0, 200), st.integers(20, 120))
def test_the_caret_stands_under_the_place(text: str, at: int, columns: int) -> None:
    at = min(at, len(text))
    shown, caret = caret_lines(text, at, columns=columns)
    assert caret.strip() == "^"
    assert shown.isprintable()
    assert columns_of(shown) <= max(columns, 40)
    left = ""
    for letter in shown:
        if columns_of(left) == len(caret) - 1 and columns_of(letter):
            break
        left += letter
    # What is under the caret is the letter at the place, or its escape.
    under = shown[len(left) :]
    if at < len(text) and columns_of(text[at]):
        first = text[at] if text[at].isprintable() else "\\"
        assert under.startswith(first)


@pytest.mark.parametrize(
    ("text", "at", "lines"),
    [
        ("abc", 1, ("  abc", "   ^")),
        ("abc", 3, ("  abc", "     ^")),
        ("中文c", 2, ("  中文c", "      ^")),
        ("a\u0301bc", 2, ("  a\u0301bc", "   ^")),
        ("a\nb", 2, ("  a\\nb", "     ^")),
        ("\x1b[31m!", 5, ("  \\x1b[31m!", "          ^")),
    ],
)
def test_carets(text: str, at: int, lines: tuple[str, str]) -> None:
    assert caret_lines(text, at) == lines


def test_long_texts_are_cut_around_the_place() -> None:
    text = "+".join(f"linear({i},{i})" for i in range(100))
    shown, caret = caret_lines(text, text.index("linear(50"), columns=60)
    assert len(shown) <= 60
    assert shown[len(caret) - 1 :].startswith("linear(50,50)")
    assert shown.startswith("  ...")
    assert shown.endswith("...")


def test_errors_can_be_pickled() -> None:
    """Sweeps compute in processes of their own."""
    error = PlacedError("wrong", "conv2d(", 6)
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.exit_code) == (str(error), 2)


def test_reading_needs_no_torch() -> None:
    code = (
        "import sys; from roofline.workload.models.expressions.reading import *;"
        "bind_variables('conv2d(c,c,3)@{s}x{s}', {'c': 3}); print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ast.literal_eval(done.stdout) is False
