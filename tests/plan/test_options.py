"""Options of policies: what is refused is told by name, and with what would do; before there is a graph."""

from __future__ import annotations

import re

import pytest

import manycl as mc
from manycl.errors import PolicyError
from manycl.plan.options import Option, Options, check_options, one_of, real, seconds, whole
from manycl.plan.policies.classical.in_order import InOrder
from manycl.plan.policy import find, names, register
from tests.plan.plan_cases import chains, problem


def value(option: Option, text: str | None = None) -> object:  # type: ignore[type-arg]
    return Options("x", option).read({} if text is None else {option.name: text})[option]


def refused(option: Option, text: str, expected: str) -> None:  # type: ignore[type-arg]
    with pytest.raises(PolicyError, match=f"^policy x: option {option.name}={re.escape(text)}: expected {expected}$"):
        value(option, text)


def test_names() -> None:
    known = Options("x", whole("alpha", 1), whole("b", 2))
    assert known.read({"alpha": "5"})
    with pytest.raises(PolicyError, match=r"policy x has no option alhpa \(did you mean 'alpha'\?\)") as caught:
        known.read({"b": "1", "alhpa": "2"})
    assert caught.value.hint == "there are alpha, b"
    with pytest.raises(PolicyError, match="policy y has no option b") as caught:
        Options("y").read({"b": "1"})
    assert "leave" in str(caught.value.hint)
    with pytest.raises(PolicyError, match="policy heft has no option objective") as caught:
        check_options(find("heft"), {"objective": "energy"})
    assert caught.value.hint == "it has none: leave the options away; objective is an option of auto, repara"


def test_seconds() -> None:
    time = seconds("t", 7.0)
    assert value(time, "2.5e-3") == 0.0025
    assert value(time) == 7.0
    for text in ("0", "-1", "nan", "inf", "soon", "", "1 s"):
        refused(time, text, "seconds above zero")


def test_numbers() -> None:
    part = Option("t", 0.5, real(below=1.0), "a part")
    assert value(part, "0") == 0.0
    assert value(part) == 0.5
    for text in ("-0.5", "1", "nan", "wide"):
        refused(part, text, "a part")


def test_words() -> None:
    word = one_of("w", "this", "that", "those")
    assert value(word) == "this"
    assert value(word, "that") == "that"
    refused(word, "thes", "this, that or those")


def test_whole_numbers() -> None:
    assert value(whole("n", 3), "12") == 12
    assert value(whole("n", 3)) == 3
    for text in ("0", "5", "-1", "1.0", "\N{SUPERSCRIPT TWO}", "", "9" * 5000):
        refused(whole("n", 3, 1, 4), text, "a whole number from 1 to 4")


WRONG = {
    "adaptive": {"method": "newton"},
    "auto": {"budget": "-1"},
    "balance": {"rounds": "0"},
    "clustering": {"queues": "many"},
    "cpop": {"contention": "maybe"},
    "hop": {"both": "perhaps"},
    "mig_heft": {"live": "often"},
    "optimal": {"workers": "-1"},
    "peft": {"contention": "1"},
    "portfolio": {"effort": "some"},
    "repara": {"rates": "0"},
}


@pytest.mark.parametrize("name", [n for n in names() if type(find(n)).__module__.startswith("manycl.")])
def test_every_policy_tells_before_there_is_a_graph(name: str) -> None:
    policy = find(name)
    check_options(policy, {})
    for wrong in ({"no_such_option": "1"}, *([WRONG[name]] if policy.options.names else [])):  # type: ignore[union-attr]
        for chosen in (name, policy):
            with pytest.raises(PolicyError, match=next(iter(wrong))):
                mc.Queue("no such device", policy=chosen, options=wrong)
        if hasattr(policy, "plan") and name in WRONG:
            with pytest.raises(PolicyError, match=next(iter(wrong))):
                policy.plan(problem(chains(1, 1), [1.0], options=wrong))


def test_policies_of_others_look_at_options_themselves() -> None:
    @register("silent about options")
    class Silent(InOrder):
        options = None  # type: ignore[assignment]

    @register("with options")
    class Open(InOrder):
        options = Options("with options", whole("n", 1))

    for policy in ("silent about options", Silent()):
        with pytest.raises(mc.ManyclError, match="no such device"):  # no sooner
            mc.Queue("no such device", policy=policy, options={"n": "x"})
    with pytest.raises(PolicyError, match="option n=x"):
        mc.Queue("no such device", policy="with options", options={"n": "x"})
