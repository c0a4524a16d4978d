"""Types of random OpenCL C programs, and the built-in functions whose results the language fixes to the last bit."""

from __future__ import annotations

from dataclasses import dataclass

WIDTHS = (1, 2, 3, 4, 8, 16)


@dataclass(frozen=True)
class Kind:
    """A scalar type; ``code``: s, u or f, as NumPy's, and bytes."""

    name: str
    code: str
    nbytes: int

    @property
    def bits(self) -> int:
        return 8 * self.nbytes

    @property
    def dtype(self) -> str:
        return {"s": "i", "u": "u", "f": "f"}[self.code] + str(self.nbytes)

    @property
    def is_float(self) -> bool:
        return self.code == "f"

    def wide(self, width: int) -> str:
        return self.name if width == 1 else f"{self.name}{width}"


CHAR, UCHAR, SHORT, USHORT = Kind("char", "s", 1), Kind("uchar", "u", 1), Kind("short", "s", 2), Kind("ushort", "u", 2)
INT, UINT, LONG, ULONG = Kind("int", "s", 4), Kind("uint", "u", 4), Kind("long", "s", 8), Kind("ulong", "u", 8)
FLOAT, DOUBLE = Kind("float", "f", 4), Kind("double", "f", 8)
INTEGERS = (CHAR, UCHAR, SHORT, USHORT, INT, UINT, LONG, ULONG)
KINDS = (*INTEGERS, FLOAT, DOUBLE)
_OF = {(k.code, k.nbytes): k for k in KINDS}


def unsigned(kind: Kind) -> Kind:
    return _OF["u", kind.nbytes]


def signed(kind: Kind) -> Kind:
    return _OF["s", kind.nbytes]


def edges(kind: Kind) -> list[str]:
    """Literals of a scalar type where functions and conversions change their ways."""
    if kind.is_float:
        f, tiny, huge = (
            ("f", "0x1p-149f", "0x1.fffffep127f") if kind is FLOAT else ("", "0x1p-1074", "0x1.fffffffffffffp1023")
        )
        values = ["0.0", "1.0", "0.5", "1.5", "2.5", "127.5", "128.0", "255.5", "3.999", "32767.5", "65535.5"]
        values += ["2147483520.0", "2147483648.0", "4294967040.0", "9.2e18", "1e30", "0x1.8p-127", "0.1"]
        plain = [f"{v}{f}" for v in values] + [tiny, huge, "INFINITY" if kind is FLOAT else "(double)INFINITY"]
        return [*plain, *(f"(-{v})" for v in plain), "NAN" if kind is FLOAT else "(double)NAN"]
    low, high = (0, 2**kind.bits - 1) if kind.code == "u" else (-(2 ** (kind.bits - 1)), 2 ** (kind.bits - 1) - 1)
    values = [low, low + 1, high, high - 1, 0, 1, 2, 3, 7, kind.bits - 1, kind.bits, high // 2, high // 3]
    values += [-1, -2, -kind.bits] if kind.code == "s" else []
    return [literal(kind, value) for value in values]


def literal(kind: Kind, value: int) -> str:
    if kind.bits < 32:
        return f"(({kind.name}){value})"
    suffix = {INT: "", UINT: "u", LONG: "L", ULONG: "UL"}[kind]
    if kind.code == "s" and value == -(2 ** (kind.bits - 1)):
        return f"({value + 1}{suffix} - 1)"
    return f"({value}{suffix})" if value < 0 else f"{value}{suffix}"


# Of each function of integers: its result (k: the arguments' kind, u: unsigned) and text; {0}, {1}, {2}: arguments,
# {t}: their type, {u}: unsigned.
OF_INTEGERS = [
    ("k", "add_sat({0}, {1})"),
    ("k", "sub_sat({0}, {1})"),
    ("k", "hadd({0}, {1})"),
    ("k", "rhadd({0}, {1})"),
    ("k", "mul_hi({0}, {1})"),
    ("k", "mad_hi({0}, {1}, {2})"),
    ("k", "mad_sat({0}, {1}, {2})"),
    ("k", "rotate({0}, {1})"),
    ("k", "clz({0})"),
    ("k", "popcount({0})"),
    ("u", "abs({0})"),
    ("u", "abs_diff({0}, {1})"),
    ("k", "min({0}, {1})"),
    ("k", "max({0}, {1})"),
    ("k", "CLAMP({0}, {1}, {2})"),
    ("k", "bitselect({0}, {1}, {2})"),
]
# Of floats; {i}: an int of their width, {x}: one of them that is no NaN. A zero may have any sign after fmin and its
# like, so 0 is added.
OF_FLOATS = [
    ("k", text)
    for text in (
        *(f"{name}({{0}})" for name in ("fabs", "ceil", "floor", "trunc", "rint", "round", "sqrt", "logb", "sign")),
        *(f"{name}({{0}}, {{1}})" for name in ("fmod", "remainder", "fdim", "nextafter", "step")),
        *(f"({name}({{0}}, {{1}}) + ({{t}})0)" for name in ("fmin", "fmax", "maxmag", "minmag")),
        "fma({0}, {1}, {2})",
        "ldexp({0}, {i})",
        "copysign({0}, {x})",
    )
]
TESTS = [("k", text) for text in (
    "signbit(NUMBER({0}, {t}))",
    *(f"{name}({{0}})" for name in ("isnan", "isinf", "isfinite", "isnormal")),
    *(f"{name}({{0}}, {{1}})" for name in (
        "isequal", "isnotequal", "isgreater", "isgreaterequal", "isless", "islessequal", "islessgreater",
        "isordered", "isunordered",
    )),
)]  # fmt: skip

OVERFLOW, LEAST, SCALAR = "signed overflow", "least by -1", "vector with scalar"
IMAGES, GREY, BY_ZERO = "images", "images of one channel", "vectors divided by zeros"
ROUNDED, EXPONENTS = "scalars rounded", "frexp of 8 or 16 doubles"
_BY_ZERO = {BY_ZERO: "LLVM takes the whole vector for undefined where one element is divided by 0"}
_NO_IMAGES = {IMAGES: "images are the OpenCL drivers'"}
KNOWN_FAULTS = {
    "Oclgrind": {
        f"{LEAST} long": "the least long by -1 is 0 to it, where the value is unspecified",
        SCALAR: "min and max of a vector and a number change its first element only",
        "add_sat long": "the least number twice gives 0",
        "sub_sat long": "0 less the least number gives that",
        "mad_sat long": "it saturates products that a sum brings back",
        "isnormal float": "subnormal numbers are normal to it",
    },
    "PoCL": {
        GREY: "their alpha is 0, which should be 1",
        ROUNDED: "ceil, floor, round and trunc of a NaN that its compiler knows are anything to it",
        EXPONENTS: "those of zeros and of subnormal numbers are wrong",
        OVERFLOW: "its compiler takes it that no signed number overflows, where OpenCL C leaves the value open",
        **{f"{LEAST} {k.name}": "the processor interrupts it" for k in INTEGERS if k.code == "s"},
        **{
            f"{name} {k.name}": "it subtracts signed numbers, and its compiler takes it that none overflows"
            for name in ("abs", "abs_diff")
            for k in INTEGERS
            if k.code == "s"
        },
        **_BY_ZERO,
    },
    "GPU": _BY_ZERO,
    **dict.fromkeys(("native -O0", "native -O3", "divided"), _NO_IMAGES),
}
"""What an implementation cannot do or computes wrongly, by function and type of its arguments: it is not asked about
kernels that call one."""
