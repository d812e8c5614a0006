"""Which of Horovod's variables have an effect, and what is said of the others."""

from __future__ import annotations

import warnings

import pytest
from ringd.torch import horovod_variables

PLACE = {
    "HOROVOD_RANK": "3",
    "HOROVOD_SIZE": "4",
    "HOROVOD_LOCAL_RANK": "1",
    "HOROVOD_LOCAL_SIZE": "2",
}
# What horovodrun sets beside it.
LAUNCHER = {
    "HOROVOD_CROSS_RANK": "1",
    "HOROVOD_CROSS_SIZE": "2",
    "HOROVOD_HOSTNAME": "node-b",
    "HOROVOD_CONTROLLER": "gloo",
    "HOROVOD_DYNAMIC_PROCESS_SETS": "1",
    "HOROVOD_CPU_OPERATIONS": "gloo",
    "HOROVOD_GLOO_RENDEZVOUS_ADDR": "10.0.0.1",
}


def test_a_place_that_horovodrun_gives() -> None:
    expected = {"rank": 3, "size": 4, "local_rank": 1, "local_size": 2}
    assert horovod_variables.options(PLACE | LAUNCHER | {"SLURM_PROCID": "0"}) == expected
    assert horovod_variables.ignored(PLACE | LAUNCHER) is None


def test_each_horovodrun_is_a_job_of_its_own() -> None:
    def job_id(port: str, given: tuple[str, ...] = (), own: str = "") -> object:
        environment = PLACE | LAUNCHER | {"HOROVOD_GLOO_RENDEZVOUS_PORT": port, "RINGD_JOB_ID": own}
        return horovod_variables.options(environment, given).get("job_id")

    assert job_id("4711") == "horovod-10.0.0.1-4711"
    assert job_id("4712") != job_id("4711")
    assert job_id("4711", given=("job_id",)) is None
    assert job_id("4711", own="mine") is None
    # What was left behind where somebody else gives the place says nothing.
    assert "job_id" not in horovod_variables.options(
        PLACE | LAUNCHER | {"HOROVOD_GLOO_RENDEZVOUS_PORT": "4711", "RANK": "0"}
    )


@pytest.mark.parametrize("missing", sorted(PLACE))
def test_half_a_place_is_an_error_unless_another_launcher_gives_one(missing: str) -> None:
    with pytest.raises(ValueError, match=f"{missing} is not set"):
        horovod_variables.options(PLACE | {missing: ""})
    for other in ("RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID"):
        assert horovod_variables.options(PLACE | {missing: "", other: "0"}) == {}
    assert horovod_variables.options(PLACE | {missing: ""}, {"rank", "size"}) == {}


def test_a_place_that_is_given_otherwise_goes_first() -> None:
    assert horovod_variables.options(PLACE | {"RANK": "0"}) == {}
    assert horovod_variables.options(PLACE, {"rank", "size", "local_rank", "local_size"}) == {}


def test_timeouts() -> None:
    variables = {"HOROVOD_STALL_SHUTDOWN_TIME_SECONDS": "120", "HOROVOD_START_TIMEOUT": "1.5"}
    assert horovod_variables.options(variables) == {"operation_timeout": 120.0, "start_timeout": 1.5}
    assert horovod_variables.options(variables, {"start_timeout"}) == {"operation_timeout": 120.0}
    assert horovod_variables.options(variables | {"RINGD_OPERATION_TIMEOUT": "5"}) == {"start_timeout": 1.5}
    assert horovod_variables.options({"HOROVOD_STALL_SHUTDOWN_TIME_SECONDS": "0"}) == {}
    assert horovod_variables.ignored(variables) is None


def test_what_is_no_number_is_an_error_that_names_it() -> None:
    with pytest.raises(ValueError, match="HOROVOD_START_TIMEOUT='soon' is not a number"):
        horovod_variables.options({"HOROVOD_START_TIMEOUT": "soon"})
    with pytest.raises(ValueError, match="HOROVOD_SIZE='x'"):
        horovod_variables.options(PLACE | {"HOROVOD_SIZE": "x"})


def test_the_others_are_named_with_what_to_use() -> None:
    line = horovod_variables.ignored(
        {
            "HOROVOD_FUSION_THRESHOLD": "67108864",
            "HOROVOD_CYCLE_TIME": "3.5",
            "HOROVOD_AUTOTUNE": "1",
            "HOROVOD_TIMELINE": "/tmp/timeline.json",
            "HOROVOD_SOMETHING_NEW": "1",
            "HOROVOD_LOG_LEVEL": "",
            "HOROVOD_WITH_PYTORCH": "1",
            "HOROVOD_GPU_OPERATIONS": "NCCL",
            "PATH": "/bin",
        }
    )
    assert line is not None
    assert line.startswith("ringd ignores HOROVOD_AUTOTUNE, HOROVOD_CYCLE_TIME (ringd measures and learns")
    for words in ("RINGD_FUSION=64MiB", "HOROVOD_TIMELINE (`ringctl", "HOROVOD_SOMETHING_NEW (ringd has no"):
        assert words in line
    for name in ("HOROVOD_LOG_LEVEL", "HOROVOD_WITH_PYTORCH", "HOROVOD_GPU_OPERATIONS", "PATH"):
        assert name not in line


def test_they_are_named_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(horovod_variables, "_told", False)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(2):
            horovod_variables.tell_of_ignored({"HOROVOD_CYCLE_TIME": "1"})
    assert len(caught) == 1
