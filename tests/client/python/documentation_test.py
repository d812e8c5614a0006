"""What help() and an editor show of the package."""

from __future__ import annotations

import inspect
import pydoc
import re
from collections.abc import Callable

import pytest
import ringd
import ringd.torch as hvd

FUNCTIONS = [
    value
    for name in hvd.__all__
    if inspect.isfunction(value := getattr(hvd, name)) and value.__doc__ is not None
]


def described(function: Callable) -> set[str]:
    """The parameters that its docstring describes, itself or by another's."""
    text = inspect.getdoc(function) or ""
    lines = re.findall(r"^([a-z_]+(?:, [a-z_]+)*): ", text, re.MULTILINE)
    names = {name for line in lines for name in line.split(", ")}
    for module, other in re.findall(r"Arguments: as\s+``(ringd\.)?(\w+)``", text):
        names |= described(getattr(ringd if module else hvd, other))
    return names


def test_every_public_function_has_a_docstring() -> None:
    functions = [name for name in hvd.__all__ if inspect.isfunction(getattr(hvd, name))]
    assert len(FUNCTIONS) == len(functions) > 30


@pytest.mark.parametrize(
    "function", [*FUNCTIONS, hvd.SyncBatchNorm, hvd.ProcessSet], ids=lambda function: function.__name__
)
def test_docstrings_describe_every_argument_and_its_default(function: Callable) -> None:
    parameters = inspect.signature(function).parameters
    missing = parameters.keys() - described(function)
    assert not missing, f"{function.__name__}() does not describe {sorted(missing)}"


@pytest.mark.parametrize("module", [ringd, hvd], ids=lambda module: module.__name__)
def test_help_is_short_and_begins_with_what_there_is(module: object) -> None:
    lines = pydoc.plain(pydoc.render_doc(module)).splitlines()
    assert len(lines) < 600
    first_page = "\n".join(lines[:60])
    for word in ("hvd.init()", "DistributedOptimizer", "RingdError"):
        assert word in first_page


def test_help_names_every_public_class_of_the_package() -> None:
    assert ringd.__doc__ is not None
    for name, value in vars(ringd).items():
        if inspect.isclass(value):
            assert name in ringd.__doc__


def test_help_of_torch_names_every_function() -> None:
    assert hvd.__doc__ is not None
    left_out = re.compile(r"_$|_async|^grouped_|_built$|_enabled$|^mpi_threads_supported$|^Handle$")
    for name in hvd.__all__:
        if left_out.search(name) is None:
            assert name in hvd.__doc__, name


def test_a_distributed_optimizer_has_docstrings_too() -> None:
    from ringd.torch.optimizer import DistributedMixin

    for name in ("step", "synchronize", "skip_synchronize", "zero_grad", "add_param_group"):
        assert inspect.getdoc(getattr(DistributedMixin, name))
